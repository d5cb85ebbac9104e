"""Kernels: their sources, what a launch touches, and launches captured and timed."""
