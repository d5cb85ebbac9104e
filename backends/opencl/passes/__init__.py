"""Rewrites for OPENCL: what folds into weights, once a model; what is fused, once a plan."""

from __future__ import annotations

from ....runtime.passes import Pass
from ....runtime.passes.batch_normalization_folding import BatchNormalizationFolding
from ....runtime.passes.pad_folding import PadFolding
from ....runtime.passes.scale_shift_folding import ScaleShiftFolding
from ....runtime.passes.transpose_elimination import TransposeElimination
from .chain_fusion import ChainFusion
from .epilogue_fusion import EpilogueFusion

__all__ = ["plan_passes", "shared_passes"]


def shared_passes() -> tuple[Pass, ...]:
    """List what runs once a model, after constant folding and before shapes are known."""
    return (
        PadFolding(),
        BatchNormalizationFolding(),
        ScaleShiftFolding(),
        TransposeElimination(),
    )


def plan_passes() -> tuple[Pass, ...]:
    """List what runs on every specialised copy, with nodes of OPENCL's own domain as a result."""
    return (ChainFusion(), EpilogueFusion())
