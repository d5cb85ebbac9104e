"""The domain of operators that only CUDA has; its passes make them, and its kernels lower them."""

from __future__ import annotations

__all__ = ["CUDA_DOMAIN"]

CUDA_DOMAIN = "aioinfer.cuda"
