"""Pools: maxima, averages and p-norms of windows, and of all that a channel has.

oneDNN computes a pool where it has compiled code for the layout at hand. Where it only loops over
indices, the native kernel takes its place, in row-major order or with channels innermost, whichever
the input has: no pool changes the layout of a network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from ctypes import c_int
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.window import Window, window_of
from ...onednn.bindings import ARG, FORWARD_INFERENCE, Attributes, Desc, OneDnnError, PrimitiveDesc
from ...onednn.post_ops import PostOp
from ...plans.elementwise_parameters import elementwise_axes, elementwise_parameters
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..elementwise.fused_elementwise import result_dtype
from ..normalization.reductions import reduction_parameters
from ..registry import FLOATS, kernel
from .onednn_windows import MAX_SPATIAL_RANK, dims_array, find_bad_window

__all__ = ["lower_average_pool", "lower_lp_pool", "lower_max_pool"]

_MAX = 0x1FF
_AVERAGE_WITH_PADDING = 0x2FF
_AVERAGE = 0x3FF

_REDUCE_SUM, _REDUCE_MEAN, _REDUCE_MAX = 0, 1, 2
_REDUCE_NORMS = {1: 5, 2: 6}
"""Numbered as in native_reductions.c; norms by their power."""

Array = np.ndarray[Any, Any]
PostOps = Sequence[tuple[PostOp, Desc | None]]


def _refuses_max_pool(node: Node) -> str | None:
    if any(value.uses or value.is_graph_output for value in node.outputs[1:]):
        return "CPU has MaxPool without its second output, the indices"
    return _refuses_pool(node)


def _refuses_pool(node: Node) -> str | None:
    reason = find_bad_window(node, node.inputs[0])
    if reason is not None:
        return reason
    size = node.attributes["kernel_shape"]
    window = window_of(node, size, size)
    reaches = [window.reach(axis) for axis in range(len(size))]
    pads = node.attributes.get("pads") or [0]
    if any(pad >= reach for pad, reach in zip(pads, [*reaches, *reaches], strict=False)):
        return f"CPU has {node.op} with pads that are smaller than the window"
    return None


@kernel("MaxPool", dtypes=FLOATS | {DType.INT8, DType.UINT8}, refuses=_refuses_max_pool)
def lower_max_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower a maximum of each window, in the layout that the input has.

    oneDNN's does not see NaN, and starts from the lowest finite number.
    """
    window = _window(node, builder)
    operand = builder.operand(_ends(node)[0])
    pd = None
    if not builder.keep_nan or operand.dtype in (DType.INT8, DType.UINT8):
        pd = _compiled(node, builder, _MAX, operand, window)
    if pd is None:
        _slide(node, builder, _slidable(_ends(node)[0], builder), window)
    else:
        _emit(node, builder, pd, operand)


@kernel("AveragePool", refuses=_refuses_pool)
def lower_average_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower an average of each window; oneDNN's own way to count where ONNX counts the same."""
    window = _window(node, builder)
    source, result = _ends(node)
    lengths, places = builder.shape(source)[2:], builder.shape(result)[2:]
    counted = window_of(node, window.kernel, lengths)
    counts_padding = bool(node.attributes.get("count_include_pad", 0))
    if not counts_padding:
        nothing = (0,) * len(lengths)
        counted = counted._replace(pads_begin=nothing, pads_end=nothing)
    operand, pd = builder.operand(source), None
    # What a window of ceil_mode reads beyond the padding does not count, but for oneDNN.
    ends = zip(window.pads_end, counted.pads_end, strict=True)
    if not counts_padding or all(read <= given for read, given in ends):
        algorithm = _AVERAGE_WITH_PADDING if counts_padding else _AVERAGE
        pd = _compiled(node, builder, algorithm, operand, window)
    if pd is None:
        counts = _counts(window, counted, lengths, places)
        _slide(node, builder, _slidable(source, builder), window, counts)
    else:
        _emit(node, builder, pd, operand)


@kernel("GlobalAveragePool")
def lower_global_average_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower an average over all spatial axes; natively where oneDNN has no compiled code for it."""
    source, result = _ends(node)
    operand, shape = builder.operand(source), builder.shape(result)
    _expect_channels(node, builder)
    ones, zeros = (1,) * (len(shape) - 2), (0,) * (len(shape) - 2)
    window = Window(operand.shape[2:], ones, ones, zeros, zeros)
    pd = _compiled(node, builder, _AVERAGE, operand, window)
    if pd is None:
        _reduce(node, builder, _walkable(source, builder), _REDUCE_MEAN)
        return
    desc = pd.desc("dst")
    layout = Layout.of(desc)
    if desc.size_bytes == math.prod(shape) * desc.dtype.item_bytes:
        # One element for each channel is row-major in every layout without padding.
        made = builder.result(result, Layout.plain(shape, desc.dtype))
        builder.primitive(pd, {ARG.SRC: operand}, {ARG.DST: made.viewed(layout)})
        return
    made = builder.result(result, layout)
    builder.primitive(pd, {ARG.SRC: operand}, {ARG.DST: made})


@kernel("GlobalMaxPool")
def lower_global_max_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower the maximum of each channel natively; oneDNN's pool has no infinities and no NaN."""
    _reduce(node, builder, _walkable(_ends(node)[0], builder), _REDUCE_MAX)


@kernel("LpPool", refuses=_refuses_pool)
def lower_lp_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower p-norms: powers, their average with padding, and the root of that as a post-op."""
    window, power = _window(node, builder), int(node.attributes.get("p", 2))
    operand = _powers(_slidable(_ends(node)[0], builder), builder, power)
    root = [(_root(power, math.prod(window.kernel)), None)]
    pd = _compiled(node, builder, _AVERAGE_WITH_PADDING, operand, window, root)
    if pd is not None:
        _emit(node, builder, pd, operand)
        return
    places = builder.shape(node.outputs[0])[2:]
    count = MAX_SPATIAL_RANK - len(places) + sum(places)
    made = _slide(node, builder, operand, window, np.ones(count, np.float32))
    _elementwise(builder, made, made, [_root(power)])


@kernel("GlobalLpPool")
def lower_global_lp_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower the p-norm of each channel."""
    power = int(node.attributes.get("p", 2))
    operand = _walkable(_ends(node)[0], builder)
    if power in _REDUCE_NORMS:
        _reduce(node, builder, operand, _REDUCE_NORMS[power])
        return
    made = _reduce(node, builder, _powers(operand, builder, power), _REDUCE_SUM)
    _elementwise(builder, made, made, [_root(power)])


def _ends(node: Node) -> tuple[Value, Value]:
    source = node.inputs[0]
    assert source is not None
    return source, node.outputs[0]


def _expect_channels(node: Node, builder: PlanBuilder) -> None:
    """Ask for one result for each channel."""
    source, result = _ends(node)
    shape = builder.shape(source)
    builder.expect_shape(result, (*shape[:2], *(1 for _ in shape[2:])))


def _window(node: Node, builder: PlanBuilder) -> Window:
    source, result = _ends(node)
    shape, made = builder.shape(source), builder.shape(result)
    kernel = node.attributes["kernel_shape"]
    if len(shape) != len(made) or len(shape) != 2 + len(kernel):
        raise builder.contradiction(f"a window of {kernel} makes no {made} of {shape}")
    builder.expect_shape(result, (*shape[:2], *made[2:]))
    return window_of(node, kernel, shape[2:]).fitted(shape[2:], made[2:])


def _counts(
    window: Window, counted: Window, lengths: Sequence[int], places: Sequence[int]
) -> Array:
    """Count what each window sees of each axis and of the pads of ``counted``, axis after axis."""
    found = []
    for axis, (length, count) in enumerate(zip(lengths, places, strict=True)):
        low, high = -counted.pads_begin[axis], length + counted.pads_end[axis]
        first = np.arange(count) * window.strides[axis] - window.pads_begin[axis]
        # Taps before low, and before high: rounded up, and no more than there are.
        before = [-((first - end) // window.dilations[axis]) for end in (low, high)]
        begin, stop = (np.clip(taps, 0, window.kernel[axis]) for taps in before)
        found.append(stop - begin)
    ones = [np.ones(1)] * (MAX_SPATIAL_RANK - len(lengths))
    return np.concatenate([*ones, *found]).astype(np.float32)


def _root(power: int, count: int = 1) -> PostOp:
    """Turn the average of ``count`` powers into their sum's root."""
    return PostOp.unary("pow", max(1, count) ** (1.0 / power), 1.0 / power)


def _powers(operand: Operand, builder: PlanBuilder, power: int) -> Operand:
    """Emit abs(x) ** p."""
    made = builder.temporary(operand.layout)
    steps = [PostOp.unary("abs"), PostOp.unary("pow", 1.0, float(power))]
    _elementwise(builder, operand, made, [PostOp.unary("square")] if power == 2 else steps[:power])
    return made


def _elementwise(
    builder: PlanBuilder, source: Operand, target: Operand, steps: Sequence[PostOp]
) -> None:
    layouts = [source.layout, target.layout]
    axes = elementwise_axes(layouts)
    assert axes is not None
    if target.layout.count:
        words = elementwise_parameters("float_elementwise", layouts, axes, steps)
        builder.native("float_elementwise", (source, target), words)


def _walkable(value: Value, builder: PlanBuilder) -> Operand:
    """Return a value as it lies if native kernels can walk it so, else in row-major order."""
    operand = builder.operand(value)
    is_walkable = elementwise_axes([operand.layout]) is not None
    return operand if is_walkable else builder.plain(value, operand.dtype)


def _slidable(value: Value, builder: PlanBuilder) -> Operand:
    """Return a value with its channels innermost if it lies so, else in row-major order."""
    operand = builder.operand(value)
    if operand.layout.is_row_major or _is_channels_last(operand):
        return operand
    return builder.plain(value, operand.dtype)


def _is_channels_last(operand: Operand) -> bool:
    return operand.layout.strides == channels_last(operand.shape, operand.dtype).strides


def _reduce(node: Node, builder: PlanBuilder, operand: Operand, kind: int) -> Operand:
    """Emit a reduction of all spatial axes; ``kind`` as native_reductions.c numbers it."""
    result = node.outputs[0]
    _expect_channels(node, builder)
    made = builder.result(
        result, Layout.plain(builder.shape(result), result_dtype(builder, result))
    )
    if made.layout.count:
        words = reduction_parameters(kind, operand.layout, made.layout)
        builder.native("reduce", (operand, made), words)
    return made


def _compiled(
    node: Node,
    builder: PlanBuilder,
    algorithm: int,
    operand: Operand,
    window: Window,
    post_ops: PostOps = (),
) -> PrimitiveDesc | None:
    """Describe oneDNN's pool of an operand as it lies; None if it has no compiled code for it."""
    shape = builder.shape(node.outputs[0])
    if 0 in shape or not operand.layout.count:
        return None
    try:
        pd = _describe(builder, algorithm, operand.layout, shape, window, post_ops)
    except OneDnnError:
        return None
    return None if pd.implementation.startswith(("ref", "simple")) else pd


def _emit(node: Node, builder: PlanBuilder, pd: PrimitiveDesc, operand: Operand) -> None:
    made = builder.result(node.outputs[0], Layout.of(pd.desc("dst")))
    builder.primitive(pd, {ARG.SRC: operand}, {ARG.DST: made})


def _slide(
    node: Node,
    builder: PlanBuilder,
    operand: Operand,
    window: Window,
    counts: Array | None = None,
) -> Operand:
    """Emit the native kernel: an average if there are counts to divide by, else a maximum."""
    result = node.outputs[0]
    shape = builder.shape(result)
    is_last = not operand.layout.is_row_major and _is_channels_last(operand)
    order = channels_last if is_last else Layout.plain
    made = builder.result(result, order(shape, operand.dtype))
    if not made.layout.count:
        return made
    outer, inner = (shape[0], shape[1]) if is_last else (shape[0] * shape[1], 1)
    words = [int(counts is not None), operand.dtype.value, operand.dtype.item_bytes, outer, inner]
    words += [1, 1, 1, 1, 1, 0] * (MAX_SPATIAL_RANK - len(window.kernel))
    words += [number for axis in _axes(window, operand.shape, shape) for number in axis]
    read = (operand,) if counts is None else (operand, builder.constant_operand(counts))
    builder.native("pool", (*read, made), words)
    return made


def _axes(
    window: Window, source: Sequence[int], result: Sequence[int]
) -> Iterable[tuple[int, ...]]:
    """Return what native_pools.c wants to know of each axis."""
    return zip(
        source[2:],
        result[2:],
        window.kernel,
        window.strides,
        window.dilations,
        window.pads_begin,
        strict=True,
    )


def channels_last(shape: Sequence[int], dtype: DType) -> Layout:
    """Describe (N, C, ...) with its channels innermost in memory."""
    strides, step = [0] * len(shape), 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis] = step
        step *= shape[axis] or 1
    return Layout.plain(shape, dtype, strides)


def _describe(
    builder: PlanBuilder,
    algorithm: int,
    layout: Layout,
    shape: Sequence[int],
    window: Window,
    post_ops: PostOps,
) -> PrimitiveDesc:
    engine = builder.engine
    return engine.primitive_desc(
        "pooling_forward",
        engine,
        c_int(FORWARD_INFERENCE),
        c_int(algorithm),
        layout.desc(engine),
        engine.any_desc(shape, layout.dtype),
        dims_array(window.strides),
        dims_array(window.kernel),
        dims_array([step - 1 for step in window.dilations]),
        dims_array(window.pads_begin),
        dims_array(window.pads_end),
        Attributes(engine, post_ops),
    )
