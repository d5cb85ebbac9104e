"""CUDA's kernels, by operator: its own, and where it has none those of all accelerators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....runtime.lowering.kernel_registry import KernelRegistry
from ...accelerator.kernels.registry import FLOATS
from ...accelerator.kernels.registry import KERNELS as SHARED

if TYPE_CHECKING:
    from ...accelerator.plan_builder import PlanBuilder

__all__ = ["FAMILIES", "KERNELS", "kernel"]

FAMILIES: tuple[str, ...] = (
    "attention",
    "channel_order",
    "concatenation",
    "convolution",
    "global_pooling",
    "matmul",
    "pooling",
    "transposition",
    "user_kernels",
)
"""The modules of this package that register kernels."""

KERNELS: KernelRegistry[PlanBuilder] = KernelRegistry(
    "CUDA", __package__, FAMILIES, FLOATS, base=SHARED
)

kernel = KERNELS.kernel
