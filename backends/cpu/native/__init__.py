"""The C extension: kernels of our own, and the loop that walks a table of steps."""
