"""A library's operation for a node, and behind it, in place, the steps that it does not take along.

A library computes some of the steps of a matmul or a convolution with it. The others are a
fused group of their own on what it has made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....runtime.graph import DType
from ...accelerator.elementwise.fused_launch import fused_launch
from ...accelerator.elementwise.fused_step import FusedStep
from ...accelerator.operand import Operand
from ...accelerator.plan import LaunchArgument
from ...accelerator.plan_builder import PlanBuilder
from ...accelerator.queues.library_operation import LibraryOperation

__all__ = ["WORKSPACE_BYTES", "FittedSteps", "call_library", "has_tf32", "launch_rest"]

WORKSPACE_BYTES = 32 << 20
"""What an operation may use beside.

cuBLASLt divides the sums of few long rows among many processors with it. cuDNN's attention needs
little, because scores are never in memory, and the convolutions that it recommends for channels
last need none.
"""

_MADE = "iacc"
"""The name of what the library has made, for the steps behind it."""


@dataclass(frozen=True)
class FittedSteps:
    """Which steps a library computes; ``rest`` are those on its result, which they call ``acc``.

    ``bias`` and ``residual`` are names of operands, ``number`` is that of ``leaky_relu``.
    """

    bias: str | None = None
    residual: str | None = None
    activation: str | None = None
    rest: tuple[FusedStep, ...] = ()
    number: float = 0.0


def call_library(
    builder: PlanBuilder,
    library: str,
    label: str,
    inputs: Sequence[LaunchArgument],
    made: Operand,
    *,
    workspace_bytes: int = WORKSPACE_BYTES,
    **parameters: Any,
) -> None:
    """Call an operation whose arguments are its inputs, its result, and workspace."""
    operation = LibraryOperation.of(
        library,
        label,
        dtype=made.dtype.label,
        workspace_bytes=workspace_bytes,
        **parameters,
    )
    workspace = builder.temporary((workspace_bytes,), DType.UINT8)
    builder.call(operation, [*inputs, made, workspace])


def has_tf32(builder: PlanBuilder, made: Operand) -> bool:
    """True if the library may round what it multiplies for a result to TF32."""
    return builder.precision.has_tf32 and made.dtype is DType.FLOAT32


def launch_rest(
    builder: PlanBuilder,
    rest: Sequence[FusedStep],
    operands: Mapping[str, Operand | float],
    made: Operand,
) -> None:
    """Compute what is left of a node's steps on the library's result, in place."""
    steps = [step.renamed({"acc": _MADE}) for step in rest]
    fused_launch(builder, steps, {**operands, _MADE: made}, made)
