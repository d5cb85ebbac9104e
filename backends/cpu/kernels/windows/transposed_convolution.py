"""ConvTranspose, in one, two and three dimensions.

Most are a matmul whose columns are folded (folded_columns.py) or a convolution of their phases
(transposed_phases.py). The others are oneDNN's, whose kernels are written for strides of one in
part: where one would run uncompiled, zeros are put between the elements of its input instead, as
that is what its strides mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node
from .....runtime.lowering.window import Window, transposed_window
from ...onednn.bindings import ARG, Attributes, Desc, PrimitiveDesc
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..matrices.epilogue import Epilogue
from ..registry import kernel
from .convolution_choice import misapplies_epilogues
from .convolution_primitives import (
    Convolution,
    bias_desc,
    choose,
    emit_convolution,
    emit_epilogue,
    find_refusal,
    given_at,
    groups_of,
    is_trivial,
)
from .folded_columns import emit_columns, goes_by_columns
from .pooling import channels_last
from .transposed_phases import goes_by_phases, lower_by_phases

__all__ = ["lower_conv_transpose"]

Array = np.ndarray[Any, Any]

_DECONVOLUTION_DIRECT = 0xA


@kernel("ConvTranspose", refuses=find_refusal)
@kernel("ConvTranspose", domain=CPU_DOMAIN, refuses=find_refusal)
def lower_conv_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a transposed convolution; its weights are seen with their first two axes swapped."""
    source, weights, (result,) = given_at(node, 0), given_at(node, 1), node.outputs
    shape, result_shape = builder.shape(source), builder.shape(result)
    weight_shape = builder.shape(weights)
    groups = groups_of(node, builder, (shape, weight_shape, result_shape), shape[1:2])
    if shape[1] != weight_shape[0] or result_shape[1] != weight_shape[1] * groups:
        raise builder.contradiction(
            f"weights of {weight_shape} make no {result_shape} of {shape} in {groups} groups"
        )
    given = transposed_window(node, weight_shape[2:], shape[2:], result_shape[2:])
    window = _longer_window(given)
    swapped = _transposed((*weight_shape[:2], *window.kernel), groups, DType.FLOAT32)
    convolution = Convolution(
        "deconvolution_forward",
        _DECONVOLUTION_DIRECT,
        shape,
        swapped.shape,
        result_shape,
        window,
        builder.held_dtype(result),
    )
    if is_trivial(node, convolution, builder):
        return
    epilogue, strides = Epilogue(node, builder), window.strides
    bias = bias_desc(node, builder)
    has_epilogue = bias is not None or bool(node.attributes.get("post_ops"))
    constant = weights.constant if convolution.held is DType.FLOAT32 else None
    if constant is not None and constant.dtype == np.float32:
        instructions = builder.engine.instruction_set
        if groups == 1 and goes_by_columns(given, weight_shape, shape, instructions):
            layout = channels_last(result_shape, DType.FLOAT32)
            made = builder.temporary(layout) if has_epilogue else builder.result(result, layout)
            emit_columns(builder, source, constant, given, made)
            if has_epilogue:
                emit_epilogue(node, builder, made, epilogue)
            return
    pd = choose(builder, convolution, bias, epilogue.attributes)
    if (
        constant is not None
        and constant.dtype == np.float32
        and goes_by_phases(given, weight_shape[1], pd.implementation, builder.keep_nan)
    ):
        lower_by_phases(node, builder, convolution, given, constant)
        return
    spread = _spread(convolution)
    if _is_uncompiled(pd) and spread is not None:
        other = choose(builder, spread, bias, epilogue.attributes)
        if not _is_uncompiled(other):
            pd, window, convolution = other, spread.window, spread
            swapped = _transposed((*weight_shape[:2], *window.kernel), groups, DType.FLOAT32)
    is_apart = has_epilogue and misapplies_epilogues(pd.implementation)
    if is_apart:
        pd = choose(builder, convolution, None, Attributes(builder.engine))
    wanted, size = pd.desc("weights"), window.kernel
    if weights.constant is not None:
        array = _longer_constant(builder, weights.constant, size)
        packed = builder.packed(array, swapped.desc(builder.engine), wanted)
    else:
        operand = _longer(builder, builder.plain(weights), size)
        packed = builder.temporary(Layout.of(wanted))
        builder.move(operand.viewed(swapped), packed)
    if pd.desc("src").dims == shape:
        read = builder.reordered(source, pd.desc("src"))
    else:
        read = _with_zeros_between(builder.operand(source), builder, strides, pd.desc("src"))
    if is_apart:
        sums = builder.temporary(Layout.of(pd.desc("dst")))
        builder.primitive(pd, {ARG.SRC: read, ARG.WEIGHTS: packed}, {ARG.DST: sums})
        emit_epilogue(node, builder, sums, epilogue)
    else:
        emit_convolution(node, builder, pd, read, packed, epilogue)


def _longer_constant(builder: PlanBuilder, array: Array, size: Sequence[int]) -> Array:
    """Append zeros to the windows of weights, if they are to be longer."""
    if array.shape[2:] == tuple(size):
        return array
    return builder.derived(f"windows of {list(size)}", (array,), lambda: _with_zeros(array, size))


def _longer(builder: PlanBuilder, weights: Operand, size: Sequence[int]) -> Operand:
    if weights.shape[2:] == tuple(size):
        return weights
    made = builder.temporary(Layout.plain((*weights.shape[:2], *size), weights.dtype))
    builder.numpy(
        lambda source, target: np.copyto(target, _with_zeros(source, size)), [weights, made]
    )
    return made


def _with_zeros(array: Array, size: Sequence[int]) -> Array:
    ends = [(0, new - old) for new, old in zip(size, array.shape[2:], strict=True)]
    return np.pad(array, [(0, 0), (0, 0), *ends])


def _transposed(shape: Sequence[int], groups: int, dtype: DType) -> Layout:
    """View the weights (C, M / groups, ...) of ConvTranspose as oneDNN's (groups,) M, C, ..."""
    read, made, *size = shape
    grouped = Layout.plain((groups, read // groups, made, *size), dtype)
    assert grouped.strides is not None
    outer, inner, across, *rest = grouped.strides
    if groups == 1:
        return Layout.plain((made, read, *size), dtype, (across, inner, *rest))
    return Layout.plain((groups, made, read // groups, *size), dtype, (outer, across, inner, *rest))


def _longer_window(window: Window) -> Window:
    """Return a transposed window with ends that oneDNN takes: above minus the stride.

    It gets longer where it has to, by elements whose weights are zeros.
    """
    longer, ends = list(window.kernel), list(window.pads_end)
    for axis, stride in enumerate(window.strides):
        while ends[axis] <= -stride:
            ends[axis] += window.dilations[axis]
            longer[axis] += 1
    return window._replace(kernel=tuple(longer), pads_end=tuple(ends))


def _spread(convolution: Convolution) -> Convolution | None:
    """View a transposed convolution as one without strides, of an input with zeros in between."""
    window, (images, channels, *lengths) = convolution.window, convolution.source
    if all(stride == 1 for stride in window.strides) or 0 in lengths:
        return None
    spread = [(n - 1) * stride + 1 for n, stride in zip(lengths, window.strides, strict=True)]
    window = _longer_window(window._replace(strides=(1,) * len(lengths)))
    weights = (*convolution.weights[: -len(lengths)], *window.kernel)
    source = (images, channels, *spread)
    return convolution._replace(source=source, weights=weights, window=window)


def _with_zeros_between(
    source: Operand, builder: PlanBuilder, strides: Sequence[int], desc: Desc
) -> Operand:
    """Emit an input that ``_spread`` has spread, in a layout."""
    layout = channels_last(desc.dims, desc.dtype)
    assert layout.strides is not None
    made = builder.temporary(layout)
    builder.native("fill", (made,), (layout.dtype.item_bytes, layout.count, 0))
    if source.layout.strides is None or source.dtype is not layout.dtype:
        dense = builder.temporary(channels_last(source.shape, layout.dtype))
        builder.move(source, dense)
        source = dense
    steps = [a * b for a, b in zip(layout.strides, (1, 1, *strides), strict=True)]
    builder.copy(source, made.viewed(Layout.plain(source.shape, layout.dtype, steps)))
    if layout.desc(builder.engine) == desc:
        return made.viewed(Layout.of(desc))
    moved = builder.temporary(Layout.of(desc))
    builder.move(made, moved)
    return moved


def _is_uncompiled(pd: PrimitiveDesc) -> bool:
    """True for a loop over indices, which a transposed convolution may hand its work to."""
    return "ref:" in pd.implementation
