"""The kernels that all accelerators share, by operator; a device may add its own to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....runtime.lowering.kernel_registry import KernelRegistry
from ..elementwise.c_types import FLOATS as FLOATS

if TYPE_CHECKING:
    from ..plan_builder import PlanBuilder

__all__ = ["FAMILIES", "FLOATS", "KERNELS", "kernel"]

FAMILIES = (
    "attention",
    "convolution",
    "elementwise",
    "gathering",
    "matmul",
    "movement",
    "normalization",
    "pad",
    "pooling",
    "reductions",
    "resize",
    "scans",
    "shapes",
    "softmax",
    "transposed_convolution",
    "views",
)
"""The modules of this package that register kernels."""

KERNELS: KernelRegistry[PlanBuilder] = KernelRegistry("accelerators", __package__, FAMILIES, FLOATS)

kernel = KERNELS.kernel
