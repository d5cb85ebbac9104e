"""Declared pre- and postprocessing, written as ordinary nodes of a model's graph."""
