"""Kernels: their sources, what a launch touches, and launches recorded and timed."""
