"""Kernels of accelerators, one family of operators a file; ``registry.py`` lists the families."""
