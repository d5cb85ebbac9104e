"""OPENCL on a real driver, and what CUDA asks of the host on one that takes no time."""
