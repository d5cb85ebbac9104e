"""CUDA's kernels, by operator: its own, and where it has none those of all accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....runtime.lowering.kernel_registry import KernelRegistry
from ...accelerator.kernels.registry import FLOATS
from ...accelerator.kernels.registry import KERNELS as SHARED

if TYPE_CHECKING:
    from ...accelerator.plan_builder import PlanBuilder

__all__ = ["FAMILIES", "KERNELS", "kernel"]

FAMILIES = {
    "attention": "aioinfer.accelerator::Attention",
    "channel_order": "aioinfer.cuda::ToChannelsLast",
    "concatenation": "Concat",
    "convolution": "aioinfer.cuda::Conv aioinfer.cuda::ConvTranspose",
    "global_pooling": "aioinfer.cuda::GlobalAveragePool aioinfer.cuda::GlobalMaxPool",
    "matmul": "Gemm MatMul aioinfer.accelerator::Gemm aioinfer.accelerator::MatMul",
    "pooling": "aioinfer.cuda::AveragePool aioinfer.cuda::MaxPool",
    "transposition": "Transpose",
    "user_kernels": "aioinfer.user::Kernel",
}
"""The operators that each module of this package registers kernels for."""

KERNELS: KernelRegistry[PlanBuilder] = KernelRegistry(
    "CUDA", __package__, FAMILIES, FLOATS, base=SHARED
)

kernel = KERNELS.kernel
