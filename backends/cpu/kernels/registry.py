"""The kernels of CPU by operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....runtime.graph import DType
from ....runtime.lowering.kernel_registry import KernelRegistry

if TYPE_CHECKING:
    from ..plans.plan_builder import PlanBuilder

__all__ = ["FAMILIES", "FLOATS", "INTEGERS", "KERNELS", "kernel"]

FLOATS = frozenset({DType.FLOAT32})
"""What oneDNN computes in; other floating types are left to other devices."""

INTEGERS = frozenset(
    {
        DType.INT8,
        DType.INT16,
        DType.INT32,
        DType.INT64,
        DType.UINT8,
        DType.UINT16,
        DType.UINT32,
    }
)
"""What native kernels compute in; 64-bit integers hold them all, but not UINT64."""

FAMILIES = (
    "elementwise.binary",
    "elementwise.casts",
    "elementwise.comparison",
    "elementwise.quantization",
    "elementwise.unary",
    "matrices.attention",
    "matrices.distances",
    "matrices.int8_matmul",
    "matrices.matmul",
    "matrices.packed_matmul",
    "matrices.recurrent",
    "movement.copies",
    "movement.pad",
    "movement.resize",
    "movement.shapes",
    "movement.views",
    "normalization.normalization_channels",
    "normalization.normalization_rows",
    "normalization.positions",
    "normalization.reductions",
    "normalization.softmax",
    "numpy_operators",
    "support_vectors",
    "trees",
    "user_kernels",
    "windows.convolution",
    "windows.int8_convolution",
    "windows.pooling",
    "windows.regions",
)
"""The modules of this package that register kernels."""

KERNELS: KernelRegistry[PlanBuilder] = KernelRegistry("CPU", __package__, FAMILIES, FLOATS)

kernel = KERNELS.kernel
