"""LayerNormalization and RMSNormalization: rows of the last axes, standard and fused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.normalization import find_other_precision
from ...native.step_runner import double_bits
from ...onednn.post_ops import CPU_DOMAIN, PostOp
from ...plans.elementwise_parameters import check_broadcast
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..elementwise.fused_elementwise import emit_elementwise
from ..matrices.attention import ELEMENT_CODES
from ..matrices.epilogue import repeated
from ..registry import kernel


class _Rows(NamedTuple):
    """A value as ``row_count`` rows of ``length`` elements: ``shape`` are the axes of one row."""

    source: Value
    row_count: int
    length: int
    shape: tuple[int, ...]
    outer: tuple[int, ...]

    @classmethod
    def of(cls, node: Node, builder: PlanBuilder) -> _Rows:
        source = node.inputs[0]
        assert source is not None
        shape = builder.shape(source)
        axis = builder.axis(int(node.attributes.get("axis", -1)), len(shape))
        builder.expect_shape(node.outputs[0], shape)
        outer, inner = shape[:axis], shape[axis:]
        return cls(source, math.prod(outer), math.prod(inner), inner, outer)


@kernel("LayerNormalization", refuses=find_other_precision)
@kernel("LayerNormalization", domain=CPU_DOMAIN, refuses=find_other_precision)
def lower_layer_normalization(node: Node, builder: PlanBuilder) -> None:
    """Lower to a native kernel, in place where it may; statistics are float32 whatever the data is.

    oneDNN has a primitive, which is no faster and is compiled for each count of rows.
    """
    rows = _Rows.of(node, builder)
    statistics = node.outputs[1:]
    dtype, source, made = _source_and_result(node, rows, builder)
    is_asked = any(value.uses or value.is_graph_output for value in statistics)
    outer = (*rows.outer, *(1 for _ in rows.shape))
    for value in statistics if is_asked else ():
        builder.expect_shape(value, outer)
    if not made.layout.count:
        for value in statistics:  # a mean of no elements is none
            builder.define_constant(value, np.full(outer, np.nan, np.float32))
        return
    kept = [builder.result(value, Layout.plain(outer, DType.FLOAT32)) for value in statistics]
    factors, later = _factors(node, rows, builder)
    parameters = (
        *(ELEMENT_CODES[dtype], rows.row_count, rows.length),
        *(double_bits(float(node.attributes.get("epsilon", 1e-5))), len(factors) - 1, len(kept)),
    )
    builder.native("layer_norm", (source, *factors, made, *kept), parameters)
    _apply(later, made, builder)


def _source_and_result(
    node: Node, rows: _Rows, builder: PlanBuilder
) -> tuple[DType, Operand, Operand]:
    """Return what both are held in, the rows, and where they are written: over them if possible."""
    dtype, is_read_later = builder.held_dtype(node.outputs[0]), rows.source in node.inputs[1:]
    dtype = dtype if dtype in ELEMENT_CODES else DType.FLOAT32
    source = builder.plain(rows.source, dtype)
    layout = Layout.plain(source.shape, dtype)
    made = builder.result(node.outputs[0], layout, over=None if is_read_later else source)
    return dtype, source, made


@kernel("RMSNormalization", refuses=find_other_precision)
@kernel("RMSNormalization", domain=CPU_DOMAIN, refuses=find_other_precision)
def lower_rms_normalization(node: Node, builder: PlanBuilder) -> None:
    """Lower to a native kernel, in place where it may; oneDNN has none."""
    rows = _Rows.of(node, builder)
    dtype, source, made = _source_and_result(node, rows, builder)
    if not made.layout.count:
        return
    bits = double_bits(float(node.attributes.get("epsilon", 1e-5)))
    parameters: Sequence[int] = (ELEMENT_CODES[dtype], rows.row_count, rows.length, bits)
    factors, later = _factors(node, rows, builder)
    builder.native("rms_norm", (source, *factors, made), parameters)
    _apply(later, made, builder)


def _factors(
    node: Node, rows: _Rows, builder: PlanBuilder
) -> tuple[list[Operand], list[tuple[str, Operand]]]:
    """Return scale and shift as rows of float32, and what is left to do where they differ by row.

    The scale is ones then.
    """
    given = [value for value in node.inputs[1:] if value is not None]
    if all(_is_same_for_all(value, rows, builder) for value in given):
        return [_row_of(value, rows, builder) for value in given], []
    ones = builder.constant_operand(np.ones(rows.length, np.float32))
    later = [*zip(("mul", "add"), map(builder.plain, given), strict=False)]
    for _, operand in later:
        check_broadcast(operand.shape, (*rows.outer, *rows.shape))
    return [ones], later


def _apply(later: list[tuple[str, Operand]], made: Operand, builder: PlanBuilder) -> None:
    """Scale and shift rows in their place."""
    if later:
        steps = [PostOp.binary(name, index) for index, (name, _) in enumerate(later, 1)]
        emit_elementwise(builder, [made, *(operand for _, operand in later)], made, steps)


def _is_same_for_all(value: Value, rows: _Rows, builder: PlanBuilder) -> bool:
    shape = builder.shape(value)
    return all(length == 1 for length in shape[: max(0, len(shape) - len(rows.shape))])


def _row_of(value: Value, rows: _Rows, builder: PlanBuilder) -> Operand:
    """Return scale or shift as one row of float32; repeated where it is shorter."""
    shape = builder.shape(value)
    if math.prod(shape) == rows.length and shape[-len(rows.shape) :] == rows.shape:
        operand = builder.plain(value, DType.FLOAT32)
    else:
        operand = repeated(value, rows.shape, builder)
    return operand.viewed(Layout.plain((rows.length,), DType.FLOAT32))
