"""Pools: maxima, averages and p-norms of windows, and of all that a channel has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from ctypes import c_float, c_int

import numpy as np

from ....runtime.graph import DType, Node, Value
from ..elementwise_chain import chain_axes
from ..onednn import ARG, ELTWISE, FORWARD_INFERENCE, Attributes, Desc, OneDnnError, PrimitiveDesc
from ..operand import Layout, Operand
from ..plan_builder import PlanBuilder
from ..post_ops import UNARY, PostOp
from .chains import result_dtype
from .reductions import reduction_parameters
from .registry import FLOATS, kernel
from .shapes import word_of
from .windows import MAX_SPATIAL_RANK, Window, dims_array, find_bad_window, window_of

__all__ = ["lower_average_pool", "lower_lp_pool", "lower_max_pool"]

_MAX = 0x1FF
_AVERAGE_WITH_PADDING = 0x2FF
_AVERAGE = 0x3FF

_REDUCE_MAX = 2
"""Numbered as in native_reductions.c."""

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
    """Lower a maximum of each window, in the layout that the input has."""
    source, result = _ends(node)
    if 0 in builder.shape(source)[2:]:
        _fill_with_lowest(result, builder)
        return
    window = _window(node, builder)
    _lower(node, builder, _MAX, window)


def _fill_with_lowest(result: Value, builder: PlanBuilder) -> None:
    """Write the maximum of nothing: all windows lie in the padding."""
    made = builder.result(result, Layout.plain(builder.shape(result), builder.dtype(result)))
    dtype = made.dtype.numpy
    lowest = -math.inf if made.dtype is DType.FLOAT32 else np.iinfo(dtype).min
    if made.layout.count:
        word = word_of(np.array(lowest, dtype))
        builder.native("fill", (made,), (made.dtype.item_bytes, made.layout.count, word))


@kernel("AveragePool", refuses=_refuses_pool)
def lower_average_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower an average of each window; oneDNN's own way to count where ONNX counts the same."""
    window = _window(node, builder)
    source, result = _ends(node)
    lengths, counts = builder.shape(source)[2:], builder.shape(result)[2:]
    given = window_of(node, window.kernel, lengths)
    if not node.attributes.get("count_include_pad", 0):
        _lower(node, builder, _AVERAGE, window)
        return
    if all(a <= b for a, b in zip(window.pads_end, given.pads_end, strict=True)):
        _lower(node, builder, _AVERAGE_WITH_PADDING, window)
        return
    # What a window of ceil_mode reads beyond the padding does not count.
    share = _counted_share(given, lengths, counts).reshape(1, 1, *counts)
    factor = builder.constant_operand(share)
    post_ops = [(PostOp.binary("mul", 0), factor.layout.desc(builder.engine))]
    _lower(node, builder, _AVERAGE_WITH_PADDING, window, post_ops, {ARG.post_op(0): factor})


@kernel("GlobalAveragePool")
def lower_global_average_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower an average over all spatial axes."""
    _lower_global(node, builder, (), math.nan)


@kernel("GlobalMaxPool")
def lower_global_max_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower the maximum of each channel natively; oneDNN's pool has no infinities and no NaN."""
    source, result = _ends(node)
    operand = builder.operand(source)
    if chain_axes([operand.layout]) is None:
        operand = builder.plain(source, operand.dtype)
    layout = Layout.plain(builder.shape(result), result_dtype(builder, result))
    made = builder.result(result, layout)
    if layout.count:
        parameters = reduction_parameters(_REDUCE_MAX, operand.layout, layout)
        builder.native("reduce", (operand, made), parameters)


@kernel("LpPool", refuses=_refuses_pool)
def lower_lp_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower p-norms: powers, their average with padding, and the root of that as a post-op."""
    window = _window(node, builder)
    power = int(node.attributes.get("p", 2))
    root = _root(power, math.prod(window.kernel))
    _lower(node, builder, _AVERAGE_WITH_PADDING, window, root, source=_powers(node, builder, power))


@kernel("GlobalLpPool")
def lower_global_lp_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower the p-norm of each channel."""
    power = int(node.attributes.get("p", 2))
    count = math.prod(builder.shape(_ends(node)[0])[2:])
    source = _powers(node, builder, power)
    _lower_global(node, builder, _root(power, count), 0.0, source)


def _ends(node: Node) -> tuple[Value, Value]:
    source = node.inputs[0]
    assert source is not None
    return source, node.outputs[0]


def _window(node: Node, builder: PlanBuilder) -> Window:
    source, result = _ends(node)
    lengths, counts = builder.shape(source)[2:], builder.shape(result)[2:]
    return window_of(node, node.attributes["kernel_shape"], lengths).fitted(lengths, counts)


def _counted_share(
    given: Window, lengths: Sequence[int], counts: Sequence[int]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Give 1 / the part of each window that lies in the input and its padding."""
    share = np.ones((), np.float64)
    for axis, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        low, high = -given.pads_begin[axis], length + given.pads_end[axis]
        seen = [
            sum(low <= position < high for position in given.positions(axis, place))
            for place in range(count)
        ]
        share = np.multiply.outer(share, given.kernel[axis] / np.array(seen, np.float64))
    return share.astype(np.float32)


def _root(power: int, count: int) -> PostOps:
    """Turn the average of ``count`` powers into their sum's root."""
    return [(PostOp.unary("pow", max(1, count) ** (1.0 / power), 1.0 / power), None)]


def _powers(node: Node, builder: PlanBuilder, power: int) -> Operand:
    """Emit abs(x) ** p; each step alone, as oneDNN compiles no chain of them."""
    source, _ = _ends(node)
    operand = builder.operand(source)
    if len(operand.shape) > MAX_SPATIAL_RANK + 2:  # ref:any reads wild from six axes on
        operand = _with_one_axis(builder, operand)
    if not operand.layout.count:
        return operand
    made = builder.temporary(operand.layout)
    desc = operand.layout.desc(builder.engine)
    for post_op in _power_steps(power):
        pd = builder.engine.primitive_desc(
            "eltwise_forward",
            builder.engine,
            c_int(FORWARD_INFERENCE),
            c_int(ELTWISE[UNARY[post_op.name][0]]),
            desc,
            desc,
            c_float(post_op.alpha),
            c_float(post_op.beta),
            Attributes(builder.engine),
        )
        builder.primitive(pd, {ARG.SRC: operand}, {ARG.DST: made})
        operand = made
    return made


def _power_steps(power: int) -> list[PostOp]:
    if power == 2:
        return [PostOp.unary("square")]
    steps = [PostOp.unary("abs")]
    return steps if power == 1 else [*steps, PostOp.unary("pow", 1.0, float(power))]


def _lower(
    node: Node,
    builder: PlanBuilder,
    algorithm: int,
    window: Window,
    post_ops: PostOps = (),
    operands: dict[int, Operand] | None = None,
    *,
    source: Operand | None = None,
) -> None:
    value, result = _ends(node)
    shape = builder.shape(result)
    if 0 in shape:
        builder.result(result, Layout.plain(shape, builder.held_dtype(result)))
        return
    operand = builder.operand(value) if source is None else source
    pd, operand = _pool(builder, algorithm, operand, shape, window, post_ops)
    made = builder.result(result, Layout.of(pd.desc("dst")))
    builder.primitive(pd, {ARG.SRC: operand, **(operands or {})}, {ARG.DST: made})


def _lower_global(
    node: Node,
    builder: PlanBuilder,
    post_ops: PostOps,
    empty: float,
    source: Operand | None = None,
) -> None:
    """Average over all spatial axes, seen as one where oneDNN takes no such number of them."""
    value, result = _ends(node)
    shape, lengths = builder.shape(result), builder.shape(value)[2:]
    if 0 in shape or 0 in lengths:
        made = builder.result(result, Layout.plain(shape, builder.dtype(result)))
        if made.layout.count:
            builder.numpy(lambda target: target.fill(empty), (made,))
        return
    operand = builder.operand(value) if source is None else source
    if not 1 <= len(lengths) <= MAX_SPATIAL_RANK:
        operand = _with_one_axis(builder, operand)
    lengths = operand.shape[2:]
    window = Window(lengths, *_neutral(len(lengths)))
    seen = (*shape[:2], *(1 for _ in lengths))
    pd, operand = _pool(builder, _AVERAGE, operand, seen, window, post_ops)
    desc = pd.desc("dst")
    layout = Layout.of(desc)
    if desc.size_bytes == math.prod(shape) * desc.dtype.item_bytes:
        # One element for each channel is row-major in every layout without padding.
        made = builder.result(result, Layout.plain(shape, desc.dtype))
        builder.primitive(pd, {ARG.SRC: operand}, {ARG.DST: made.viewed(layout)})
        return
    made = builder.result(result, layout)
    builder.primitive(pd, {ARG.SRC: operand}, {ARG.DST: made})


def _neutral(rank: int) -> Iterable[tuple[int, ...]]:
    return (1,) * rank, (1,) * rank, (0,) * rank, (0,) * rank


def _with_one_axis(builder: PlanBuilder, operand: Operand) -> Operand:
    shape = (*operand.shape[:2], math.prod(operand.shape[2:]))
    if not operand.layout.is_row_major:
        flat = builder.temporary(Layout.plain(operand.shape, operand.dtype))
        builder.move(operand, flat)
        operand = flat
    return operand.viewed(Layout.plain(shape, operand.dtype))


def _pool(
    builder: PlanBuilder,
    algorithm: int,
    operand: Operand,
    shape: Sequence[int],
    window: Window,
    post_ops: PostOps,
) -> tuple[PrimitiveDesc, Operand]:
    """Choose an implementation for the layout at hand, or else for channels last."""
    attributes = Attributes(builder.engine, post_ops)
    layout = operand.layout
    try:
        pd = _describe(builder, algorithm, layout, shape, window, attributes)
    except OneDnnError:
        pd = None
    if pd is not None and not pd.implementation.startswith("ref"):
        return pd, operand
    last = channels_last(layout.shape, layout.dtype)
    better = _describe(builder, algorithm, last, shape, window, attributes)
    if pd is not None and better.implementation.startswith("ref"):
        return pd, operand
    moved = builder.temporary(last)
    builder.move(operand, moved)
    return better, moved


def channels_last(shape: Sequence[int], dtype: DType) -> Layout:
    """Describe (N, C, ...) with its channels innermost in memory."""
    strides, step = [0] * len(shape), 1
    for axis in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[axis] = step
        step *= max(1, shape[axis])
    return Layout.plain(shape, dtype, strides)


def _describe(
    builder: PlanBuilder,
    algorithm: int,
    layout: Layout,
    shape: Sequence[int],
    window: Window,
    attributes: Attributes,
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
        attributes,
    )
