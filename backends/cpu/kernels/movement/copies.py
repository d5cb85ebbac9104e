"""Operators that move data: joining, repeating, padding, reordering in space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_int

from .....runtime.graph import Node, Value
from .....runtime.lowering.space_depth import block_transpose
from ...onednn.bindings import ARG, Attributes, Descs, OneDnnError
from ...plans.elementwise_parameters import check_broadcast
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..registry import kernel
from .views import permuted, sliced


@kernel("Concat", dtypes=None)
def lower_concat(node: Node, builder: PlanBuilder) -> None:
    """Lower a concatenation, by oneDNN where all parts lie in the same order, else by copies."""
    (result,) = node.outputs
    shape = builder.shape(result)
    axis = builder.axis(int(node.attributes["axis"]), len(shape))
    _check_parts(node, shape, axis, builder)
    parts = [value for value in node.inputs if value is not None and 0 not in builder.shape(value)]
    growing = builder.growing(result)
    if growing is not None:
        _join(parts, growing, axis, builder)
    elif not parts or not _concat_blocked(parts, result, axis, builder):
        made = builder.result(result, Layout.plain(shape, builder.held_dtype(result)))
        _join(parts, made, axis, builder)


def _check_parts(node: Node, shape: Sequence[int], axis: int, builder: PlanBuilder) -> None:
    total = 0
    for value in node.inputs:
        if value is not None:
            given = builder.shape(value)
            total += given[axis] if len(given) == len(shape) else 0
            builder.expect_shape(
                value, (*shape[:axis], *given[axis : axis + 1], *shape[axis + 1 :])
            )
    if total != shape[axis]:
        raise builder.contradiction(f"its inputs have {total} of {shape[axis]} along axis {axis}")


def _concat_blocked(parts: Sequence[Value], result: Value, axis: int, builder: PlanBuilder) -> bool:
    """Join parts by oneDNN, where at least one is not plain; oneDNN chooses the result's layout."""
    operands = [builder.operand(value) for value in parts]
    if all(operand.layout.is_row_major for operand in operands):
        return False
    held = builder.held_dtype(result)
    if not all(operand.layout.has_desc and operand.dtype is held for operand in operands):
        return False
    engine = builder.engine
    try:
        descs = [operand.layout.desc(engine) for operand in operands]
        pd = engine.primitive_desc(
            "concat",
            engine,
            None,
            c_int(len(descs)),
            c_int(axis),
            Descs(descs),
            Attributes(engine),
        )
    except OneDnnError:
        return False
    reads = {ARG.MULTIPLE_SRC + index: operand for index, operand in enumerate(operands)}
    made = builder.result(result, Layout.of(pd.desc("dst")))
    builder.primitive(pd, reads, {ARG.DST: made})
    return True


def _join(parts: Sequence[Value], made: Operand, axis: int, builder: PlanBuilder) -> None:
    """Fill a strided operand with parts that follow each other along an axis."""
    assert made.layout.strides is not None
    start = 0
    for value in parts:
        shape = builder.shape(value)
        place = made.viewed(
            Layout.plain(shape, made.dtype, made.layout.strides),
            start * made.layout.strides[axis],
        )
        start += shape[axis]
        builder.move(builder.operand(value), place)


@kernel("Expand", dtypes=None, constant_inputs=(1,))
def lower_expand(node: Node, builder: PlanBuilder) -> None:
    """Lower a broadcast that has to be there in memory."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    operand = builder.plain(source, builder.operand(source).dtype)
    shape = builder.shape(result)
    made = builder.result(result, Layout.plain(shape, operand.dtype))
    builder.copy(broadcast(operand, shape), made)


def broadcast(operand: Operand, shape: Sequence[int]) -> Operand:
    """View a strided operand in a larger shape; repeated axes have stride 0."""
    layout = operand.layout
    assert layout.strides is not None
    check_broadcast(layout.shape, shape)
    missing = len(shape) - len(layout.shape)
    strides = [0] * missing + [
        0 if have == 1 and want != 1 else stride
        for have, want, stride in zip(layout.shape, shape[missing:], layout.strides, strict=True)
    ]
    return operand.viewed(Layout.plain(shape, layout.dtype, strides))


@kernel("Tile", dtypes=None, constant_inputs=(1,))
def lower_tile(node: Node, builder: PlanBuilder) -> None:
    """Lower a repetition: each axis becomes a repeating and a moving one."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    operand = builder.plain(source, builder.operand(source).dtype)
    made = builder.result(result, Layout.plain(builder.shape(result), operand.dtype))
    repeats = node.integers_at(1) or []
    if len(repeats) != len(operand.shape):
        raise builder.contradiction(f"{len(repeats)} repeats of {len(operand.shape)} axes")
    builder.expect_shape(result, [dim * n for dim, n in zip(operand.shape, repeats, strict=True)])
    assert operand.layout.strides is not None
    assert made.layout.strides is not None
    dims: list[int] = []
    source_strides: list[int] = []
    target_strides: list[int] = []
    axes = zip(operand.shape, repeats, operand.layout.strides, made.layout.strides, strict=True)
    for dim, repeat, source_stride, target_stride in axes:
        dims += [repeat, dim]
        source_strides += [0, source_stride]
        target_strides += [dim * target_stride, target_stride]
    builder.copy(
        operand.viewed(Layout.plain(dims, operand.dtype, source_strides)),
        made.viewed(Layout.plain(dims, operand.dtype, target_strides)),
    )


@kernel("DepthToSpace", "SpaceToDepth", dtypes=None)
def lower_depth_to_space(node: Node, builder: PlanBuilder) -> None:
    """Lower the exchange of channels and space: one copy over six axes."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    operand = builder.plain(source, builder.operand(source).dtype)
    dims, order = block_transpose(node, operand.shape)
    builder.expect_count(source, math.prod(dims))
    builder.expect_count(result, math.prod(dims))
    moved = permuted(operand.viewed(Layout.plain(dims, operand.dtype)), order, builder)
    made = builder.result(result, Layout.plain(builder.shape(result), operand.dtype))
    builder.copy(moved, made.viewed(Layout.plain(moved.shape, operand.dtype)))


@kernel("Gather", dtypes=None)
def lower_gather(node: Node, builder: PlanBuilder) -> None:
    """Lower a lookup along an axis; a single known index is a view."""
    source, indices = node.inputs
    assert source is not None
    assert indices is not None
    (result,) = node.outputs
    shape = builder.shape(source)
    axis = builder.axis(int(node.attributes.get("axis", 0)), len(shape))
    builder.expect_shape(result, (*shape[:axis], *builder.shape(indices), *shape[axis + 1 :]))
    known = node.integers_at(1) if math.prod(builder.shape(indices)) == 1 else None
    if known and -shape[axis] <= known[0] < shape[axis]:
        _take_one(node, builder, axis, known[0])
        return
    operand = builder.plain(source, builder.operand(source).dtype)
    index = builder.plain(indices)
    made = builder.result(result, Layout.plain(builder.shape(result), operand.dtype))
    if not index.layout.count:
        return
    outer = math.prod(shape[:axis])
    inner = math.prod(shape[axis + 1 :]) * operand.dtype.item_bytes
    parameters = [outer, shape[axis], index.layout.count, inner, index.dtype.item_bytes]
    builder.native("gather", (operand, index, made), parameters)


def _take_one(node: Node, builder: PlanBuilder, axis: int, index: int) -> None:
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    shape = list(builder.shape(source))
    begin = [0] * len(shape)
    begin[axis] = index % shape[axis]
    shape[axis] = 1
    part = sliced(source, builder, begin, shape)
    if part.layout.strides is None:
        flat = builder.temporary(Layout.plain(shape, part.dtype))
        builder.move(part, flat)
        part = flat
    strides = list(part.layout.strides or ())
    inserted = len(builder.shape(result)) - len(shape) + 1
    dims = shape[:axis] + [1] * inserted + shape[axis + 1 :]
    kept = strides[:axis] + [1] * inserted + strides[axis + 1 :]
    builder.define(result, part.viewed(Layout.plain(dims, part.dtype, kept)))
