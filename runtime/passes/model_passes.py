"""The passes that devices with kernels of their own want once a model, before shapes are known."""

from __future__ import annotations

from functools import partial

from .folding.scale_shift_folding import ScaleShiftFolding
from .rewriting.late_pass import LatePass
from .rewriting.pass_base import Pass

__all__ = ["model_passes"]

_late = partial(LatePass, __package__)


def model_passes() -> tuple[Pass, ...]:
    """List what folds into weights, and what cancels, to run after ``default_passes``.

    Only ONNX's own operators come out, so that new weights are shared by all plans; the old ones
    are left to ``DeadCode``.
    """
    return (
        _late("fusion.einsum_decomposition:EinsumDecomposition", "einsum decomposition", "Einsum"),
        _late("folding.pad_folding:PadFolding", "pad folding", "Pad"),
        _late(
            "folding.batch_normalization_folding:BatchNormalizationFolding",
            "batch normalization folding",
            "BatchNormalization",
        ),
        _late("layout.movement_hoisting:MovementHoisting", "movement hoisting", "Slice Transpose"),
        ScaleShiftFolding(),
        _late(
            "layout.transpose_elimination:TransposeElimination",
            "transpose elimination",
            "Transpose",
        ),
    )
