"""Kernels of CPU: how each operator becomes steps; one family of operators a file."""
