"""The passes that devices with kernels of their own want once a model, before shapes are known."""

from __future__ import annotations

from .folding.batch_normalization_folding import BatchNormalizationFolding
from .folding.pad_folding import PadFolding
from .folding.scale_shift_folding import ScaleShiftFolding
from .fusion.einsum_decomposition import EinsumDecomposition
from .layout.movement_hoisting import MovementHoisting
from .layout.transpose_elimination import TransposeElimination
from .rewriting.pass_base import Pass

__all__ = ["model_passes"]


def model_passes() -> tuple[Pass, ...]:
    """List what folds into weights, and what cancels, to run after ``default_passes``.

    Only ONNX's own operators come out, so that new weights are shared by all plans; the old ones
    are left to ``DeadCode``.
    """
    return (
        EinsumDecomposition(),
        PadFolding(),
        BatchNormalizationFolding(),
        MovementHoisting(),
        ScaleShiftFolding(),
        TransposeElimination(),
    )
