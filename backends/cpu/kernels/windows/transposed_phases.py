"""ConvTranspose in float32 as a convolution of its phases (phases.py), brought to their places.

oneDNN computes many transposed convolutions of groups, and of windows far longer than a vector,
uncompiled; as convolutions it has compiled code for all of them. A bias and steps without operands
are applied to phases, others to what lies in its places.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.window import Window
from ...onednn.bindings import ARG, Attributes
from ...onednn.post_ops import parse_post_ops
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..matrices.epilogue import Epilogue
from ..movement.pixel_shuffle import LONG_RUN, emit_shuffle
from .convolution_choice import misapplies_epilogues
from .convolution_primitives import (
    CONVOLUTION_DIRECT,
    Convolution,
    bias_of,
    choose,
    emit_convolution,
    emit_epilogue,
    given_at,
)
from .phases import Phases, has_few_zeros, has_no_zeros, phase_weights, phases_of
from .pooling import channels_last

__all__ = ["goes_by_phases", "lies_in_planes", "lower_by_phases"]

Array = np.ndarray[Any, Any]

_MANY_CHANNELS, _FEW_PLACES, _THREE_AXES = 32, 4, 3


def goes_by_phases(window: Window, made: int, implementation: str, keep_nan: bool = False) -> bool:
    """True if this is the fastest; oneDNN would take ``implementation`` instead. Pure.

    With ``keep_nan`` no zeros may be multiplied that the model does not have.

    It has compiled code for strides that divide windows, which is as good or better for many
    channels made by a group, ``made``, and strides that step over few places; and over three axes.
    """
    if not has_few_zeros(window) or (keep_nan and not has_no_zeros(window)):
        return False
    if not misapplies_epilogues(implementation):
        return True
    is_small = made < _MANY_CHANNELS or math.prod(window.strides) > _FEW_PLACES
    return is_small and len(window.kernel) < _THREE_AXES


def lies_in_planes(whole: Convolution, phases: Phases, *, is_output: bool) -> bool:
    """True if the result is to have its channels outermost. Pure.

    An output has them so, and is spared a reorder; phases of single channels lie in runs.
    """
    return is_output or (whole.shape.is_depthwise and phases.phases[-1] >= LONG_RUN)


def lower_by_phases(
    node: Node, builder: PlanBuilder, whole: Convolution, window: Window, constant: Array
) -> None:
    """Lower a ConvTranspose, ``whole``, of float32 weights (C, M / groups, ...)."""
    groups, shape, result = whole.shape.groups, whole.source, node.outputs[0]
    phases = phases_of(window, shape[2:], whole.result[2:])
    array = builder.derived(
        f"phases {phases.window.kernel} {phases.phases} {window.dilations} {groups}",
        (constant,),
        lambda: phase_weights(constant, window, phases, groups),
    )
    dims = (groups, array.shape[0] // groups, *array.shape[1:]) if groups > 1 else array.shape
    made = (shape[0], array.shape[0], *phases.counts)
    convolution = whole._replace(
        call="convolution_forward",
        algorithm=CONVOLUTION_DIRECT,
        weights=dims,
        result=made,
        window=phases.window,
    )
    is_whole, bias = phases.are_trivial and made == whole.result, bias_of(node)
    has_operands = any(step.operand is not None for step in parse_post_ops(node.attributes))
    is_apart = not is_whole and (has_operands or (bias is not None and bias.constant is None))
    has_bias, epilogue = bias is not None and not is_apart, Epilogue(node, builder)
    pd = choose(
        builder,
        convolution,
        builder.engine.desc((made[1],), DType.FLOAT32) if has_bias else None,
        Attributes(builder.engine) if is_apart else epilogue.attributes,
    )
    plain = Layout.plain(dims, DType.FLOAT32)
    packed = builder.packed(array, plain.desc(builder.engine), pd.desc("weights"))
    read = builder.reordered(given_at(node, 0), pd.desc("src"))
    if is_whole:
        emit_convolution(node, builder, pd, read, packed, epilogue)
        return
    reads = {ARG.SRC: read, ARG.WEIGHTS: packed}
    if bias is not None and has_bias:
        reads[ARG.BIAS] = _repeated(builder, bias, phases, groups)
    sums = builder.temporary(Layout.of(pd.desc("dst")))
    builder.primitive(pd, reads, {ARG.DST: sums})
    if sums.layout.strides is None:
        dense = builder.temporary(channels_last(made, DType.FLOAT32))
        builder.move(sums, dense)
        sums = dense
    layout = channels_last(whole.result, DType.FLOAT32)
    if lies_in_planes(whole, phases, is_output=result.is_graph_output):
        layout = Layout.plain(whole.result, DType.FLOAT32)
    target = builder.temporary(layout) if is_apart else builder.result(result, layout)
    emit_shuffle(builder, sums, target, phases.phases, phases.cut, groups)
    if is_apart:
        emit_epilogue(node, builder, target, epilogue)


def _repeated(builder: PlanBuilder, bias: Value, phases: Phases, groups: int) -> Operand:
    """Bring a constant bias to (groups x phases x M / groups)."""
    row, times = bias.constant, math.prod(phases.phases)
    assert row is not None
    return builder.constant_operand(
        builder.derived(
            f"phases of {times} in {groups}",
            (row,),
            lambda: np.repeat(row.reshape(groups, 1, -1), times, 1).reshape(-1),
        )
    )
