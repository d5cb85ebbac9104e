"""CUDA: models as launches, library calls and graphs on NVIDIA GPUs."""
