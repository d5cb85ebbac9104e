"""A pipeline of stages that take a known time, and how much of them overlaps."""
