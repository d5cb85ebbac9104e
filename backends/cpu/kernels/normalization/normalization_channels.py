"""Normalisations of channels: of batches, of instances, of groups, and of neighbours (LRN)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_float, c_int, c_int64, c_uint

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.normalization import (
    find_low_rank,
    find_other_batch_normalization,
    find_other_parameters,
)
from ...onednn.bindings import ARG, BINARY_ALGORITHMS, FORWARD_INFERENCE, Attributes
from ...onednn.numbers import USE_GLOBAL_STATISTICS, USE_SCALE, USE_SHIFT
from ...onednn.post_ops import PostOp
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..registry import FLOATS, kernel

__all__ = [
    "lower_batch_normalization",
    "lower_group_normalization",
    "lower_instance_normalization",
    "lower_lrn",
]

_ACROSS_CHANNELS = 0xAFF
_MOST = 1 << 24
"""oneDNN counts channels in 32 bits."""
_MAX_RANK = 5
"""oneDNN normalises images and volumes; more spatial axes are seen as one."""


def _refuses_channels(node: Node) -> str | None:
    return find_low_rank(node) or find_other_parameters(node, FLOATS)


def _refuses_batch_normalization(node: Node) -> str | None:
    return find_other_batch_normalization(node) or _refuses_channels(node)


def _refuses_groups(node: Node) -> str | None:
    if node.outputs[0].type is None:  # onnx infers no type for GroupNormalization
        return f"the shape of {node.op}'s result is not known"
    return _refuses_channels(node)


def _refuses_lrn(node: Node) -> str | None:
    if not 1 <= int(node.attributes["size"]) <= _MOST:
        return f"CPU has LRN over 1 to {_MOST} channels"
    if int(node.attributes["size"]) % 2 == 0:
        return "CPU has LRN over an odd number of channels"
    return find_low_rank(node)


@kernel("BatchNormalization", refuses=_refuses_batch_normalization)
def lower_batch_normalization(node: Node, builder: PlanBuilder) -> None:
    """Lower what was not folded into a neighbour, in the layout that the input has."""
    source, scale, shift, mean, variance = (_given(node, index) for index in range(5))
    result, engine = node.outputs[0], builder.engine
    shape = builder.shape(source)
    builder.expect_shape(result, shape)
    for value in (scale, shift, mean, variance):
        builder.expect_shape(value, shape[1:2])
    operand = _few_axes(builder, source)
    if _is_empty(result, builder):
        return
    desc = operand.layout.desc(engine)
    pd = engine.primitive_desc(
        "batch_normalization_forward",
        engine,
        c_int(FORWARD_INFERENCE),
        desc,
        desc,
        c_float(node.attributes.get("epsilon", 1e-5)),
        c_uint(USE_GLOBAL_STATISTICS | USE_SCALE | USE_SHIFT),
        Attributes(engine),
    )
    parameters = {ARG.SCALE: scale, ARG.SHIFT: shift, ARG.MEAN: mean, ARG.VARIANCE: variance}
    reads = {role: builder.plain(value, DType.FLOAT32) for role, value in parameters.items()}
    made = _result_like(builder, result, operand)
    builder.primitive(pd, {ARG.SRC: operand, **reads}, {ARG.DST: made})


@kernel("InstanceNormalization", refuses=_refuses_groups)
def lower_instance_normalization(node: Node, builder: PlanBuilder) -> None:
    """Lower a normalisation of each channel of each image."""
    channels = builder.shape(_given(node, 0))[1]
    _lower_groups(node, builder, channels)


@kernel("GroupNormalization", refuses=_refuses_groups)
def lower_group_normalization(node: Node, builder: PlanBuilder) -> None:
    """Lower a normalisation of groups of channels; there is a scale for each channel or group."""
    _lower_groups(node, builder, int(node.attributes["num_groups"]))


@kernel("LRN", refuses=_refuses_lrn)
def lower_lrn(node: Node, builder: PlanBuilder) -> None:
    """Lower a local response normalisation across channels."""
    source, result, engine = _given(node, 0), node.outputs[0], builder.engine
    builder.expect_shape(result, builder.shape(source))
    if _is_empty(result, builder):
        return
    operand = builder.operand(source)
    shape = operand.shape
    if len(shape) != 4 or not operand.layout.has_desc:
        dims = (*shape[:2], math.prod(shape[2:]), 1)
        operand = builder.plain(source, operand.dtype).viewed(Layout.plain(dims, operand.dtype))
    desc = operand.layout.desc(engine)
    pd = engine.primitive_desc(
        "lrn_forward",
        engine,
        c_int(FORWARD_INFERENCE),
        c_int(_ACROSS_CHANNELS),
        desc,
        desc,
        c_int64(int(node.attributes["size"])),
        c_float(node.attributes.get("alpha", 1e-4)),
        c_float(node.attributes.get("beta", 0.75)),
        c_float(node.attributes.get("bias", 1.0)),
        Attributes(engine),
    )
    made = _result_like(builder, result, operand)
    builder.primitive(pd, {ARG.SRC: operand}, {ARG.DST: made})


def _lower_groups(node: Node, builder: PlanBuilder, groups: int) -> None:
    """Normalise rows, one for each group of each image; then scale and shift in place."""
    source, scale, shift = (_given(node, index) for index in range(3))
    result, engine = node.outputs[0], builder.engine
    given = builder.shape(source)
    builder.expect_shape(result, given)
    if groups < 1 or given[1] % groups:
        raise builder.contradiction(f"{given[1]} channels are no {groups} groups")
    each = given[1:2] if builder.shape(scale) == given[1:2] else (groups,)
    builder.expect_shape(scale, each)
    builder.expect_shape(shift, each)
    if _is_empty(result, builder):
        return
    shape, held = builder.shape(result), builder.held_dtype(result)
    operand = builder.plain(source, builder.operand(source).dtype)
    rows = (shape[0] * groups, math.prod(shape[1:]) // groups)
    normalised = builder.temporary(Layout.plain(shape, DType.FLOAT32))
    pd = engine.primitive_desc(
        "layer_normalization_forward",
        engine,
        c_int(FORWARD_INFERENCE),
        engine.desc(rows, operand.dtype),
        engine.desc(rows, DType.FLOAT32),
        None,
        c_float(node.attributes.get("epsilon", 1e-5)),
        c_uint(0),
        Attributes(engine),
    )
    row_operand = operand.viewed(Layout.plain(rows, operand.dtype))
    row_result = normalised.viewed(Layout.plain(rows, DType.FLOAT32))
    builder.primitive(pd, {ARG.SRC: row_operand}, {ARG.DST: row_result})
    made = builder.result(result, Layout.plain(shape, held))
    _scale_and_shift(builder, normalised, made, scale, shift)


def _scale_and_shift(
    builder: PlanBuilder, source: Operand, target: Operand, scale: Value, shift: Value
) -> None:
    engine = builder.engine
    (count,) = builder.shape(scale)
    shape = source.shape
    rest = math.prod(shape[1:]) // count
    # Behind a broadcast axis, oneDNN 3 takes a last one of length 1 for the one to go along.
    tail = (rest,) if rest > 1 else ()
    dims = (shape[0], count, *tail)
    each = Layout.plain((1, count, *(1 for _ in tail)), DType.FLOAT32)
    read, written = Layout.plain(dims, source.dtype), Layout.plain(dims, target.dtype)
    pd = engine.primitive_desc(
        "binary",
        engine,
        c_int(BINARY_ALGORITHMS["mul"]),
        read.desc(engine),
        each.desc(engine),
        written.desc(engine),
        Attributes(engine, [(PostOp.binary("add", 0), each.desc(engine))]),
    )
    reads = {
        ARG.SRC: source.viewed(read),
        ARG.SRC_1: builder.plain(scale, DType.FLOAT32).viewed(each),
        ARG.post_op(0): builder.plain(shift, DType.FLOAT32).viewed(each),
    }
    builder.primitive(pd, reads, {ARG.DST: target.viewed(written)})


def _given(node: Node, index: int) -> Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _is_empty(result: Value, builder: PlanBuilder) -> bool:
    """Make the result's place if it has no elements, and say so."""
    shape = builder.shape(result)
    if 0 in shape:
        builder.result(result, Layout.plain(shape, builder.held_dtype(result)))
    return 0 in shape


def _few_axes(builder: PlanBuilder, value: Value) -> Operand:
    operand = builder.operand(value)
    shape = operand.shape
    if len(shape) <= _MAX_RANK and (operand.layout.strides is None or 0 not in shape):
        return operand
    dims = (*shape[:2], math.prod(shape[2:]))
    return builder.plain(value, operand.dtype).viewed(Layout.plain(dims, operand.dtype))


def _result_like(builder: PlanBuilder, result: Value, operand: Operand) -> Operand:
    """Make the result's place in the layout of an operand, which may show its shape otherwise."""
    shape: Sequence[int] = builder.shape(result)
    if tuple(shape) == operand.shape:
        return builder.result(result, operand.layout, over=operand)
    made = builder.result(result, Layout.plain(shape, operand.dtype))
    return made.viewed(operand.layout)
