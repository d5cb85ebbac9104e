"""Compiled plans in exported networks: oneDNN's objects, operands, steps, packed weights."""
