"""What devices with kernels of their own ask of a node: which kernel, which numbers per axis."""
