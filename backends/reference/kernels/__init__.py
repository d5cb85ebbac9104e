"""The device's own kernels, one file a family; an operator without one runs in onnx.reference."""

from . import (  # they register here
    elementwise,
    linear,
    movement,
    normalize,
    reduce,
)
from .registry import Kernel, find_kernel, kernel

__all__ = [
    "Kernel",
    "elementwise",
    "find_kernel",
    "kernel",
    "linear",
    "movement",
    "normalize",
    "reduce",
]
