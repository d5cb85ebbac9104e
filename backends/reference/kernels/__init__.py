"""The device's own kernels, one file a family; an operator without one runs in onnx.reference."""

from . import (  # they register here
    conv,
    elementwise,
    linear,
    normalize,
    pool,
    reduce,
    shape,
)
from .registry import Kernel, find_kernel, kernel

__all__ = [
    "Kernel",
    "conv",
    "elementwise",
    "find_kernel",
    "kernel",
    "linear",
    "normalize",
    "pool",
    "reduce",
    "shape",
]
