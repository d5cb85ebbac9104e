"""What callers give and get: ports, tensors, arrays on devices, and memory for results."""
