"""Tensors of a file and of files beside it, as arrays; no size and no path in them is believed."""
