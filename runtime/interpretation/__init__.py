"""Graphs run node by node on numpy arrays, control flow and its bodies included."""
