"""The device's own kernels, one file a family; an operator without one runs in onnx.reference."""

from . import (  # they register here
    conv,
    elementwise,
    linear,
    movement,
    normalize,
    pool,
    reduce,
)
from .registry import Kernel, find_kernel, kernel

__all__ = [
    "Kernel",
    "conv",
    "elementwise",
    "find_kernel",
    "kernel",
    "linear",
    "movement",
    "normalize",
    "pool",
    "reduce",
]
