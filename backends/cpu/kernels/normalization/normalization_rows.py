"""LayerNormalization and RMSNormalization: rows of the last axes, standard and fused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .....runtime.graph import DType, Node, TensorType, Value
from .....runtime.lowering.normalization import find_other_precision
from ...native.step_runner import double_bits
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..matrices.attention import ELEMENT_CODES
from ..matrices.epilogue import repeated
from ..registry import kernel


def _refuses_rows(node: Node) -> str | None:
    return find_other_precision(node) or _find_factor_by_row(node)


def _find_factor_by_row(node: Node) -> str | None:
    """Say which scale or offset may differ from row to row."""
    source, *factors = (value.type if value is not None else None for value in node.inputs)
    if not isinstance(source, TensorType) or source.shape is None:
        return None
    axis, rank = int(node.attributes.get("axis", -1)), len(source.shape)
    length = -axis if axis < 0 else rank - axis
    for known in factors:
        shape = known.shape if isinstance(known, TensorType) else None
        if shape is not None and any(dim != 1 for dim in shape[: max(0, len(shape) - length)]):
            return f"CPU has {node.op_type} with one scale and offset for all rows"
    return None


@dataclass(frozen=True)
class _Rows:
    """A value as ``count`` rows of ``length`` elements: ``shape`` are the axes of one row."""

    source: Value
    count: int
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


@kernel("LayerNormalization", refuses=_refuses_rows)
@kernel("LayerNormalization", domain=CPU_DOMAIN, refuses=_refuses_rows)
def lower_layer_normalization(node: Node, builder: PlanBuilder) -> None:
    """Lower to a native kernel, in place where it may; statistics are float32 whatever the data is.

    oneDNN has a primitive, which is no faster and is compiled for each count of rows.
    """
    rows = _Rows.of(node, builder)
    result, *statistics = node.outputs
    dtype, source, made = _source_and_result(rows, result, builder)
    is_asked = any(value.uses or value.is_graph_output for value in statistics)
    outer = (*rows.outer, *(1 for _ in rows.shape))
    for value in statistics if is_asked else ():
        builder.expect_shape(value, outer)
    if not made.layout.count:
        for value in statistics:  # a mean of no elements is none
            builder.define_constant(value, np.full(outer, np.nan, np.float32))
        return
    kept = [builder.result(value, Layout.plain(outer, DType.FLOAT32)) for value in statistics]
    has_shift = node.input_at(2) is not None
    factors = [_factors(node, 1 + index, rows, builder) for index in range(1 + has_shift)]
    parameters = (
        *(ELEMENT_CODES[dtype], rows.count, rows.length),
        *(double_bits(float(node.attributes.get("epsilon", 1e-5))), int(has_shift), len(kept)),
    )
    builder.native("layer_norm", (source, *factors, made, *kept), parameters)


def _source_and_result(
    rows: _Rows, result: Value, builder: PlanBuilder
) -> tuple[DType, Operand, Operand]:
    """Return what both are held in, the rows, and where they are written: over them if possible."""
    dtype = builder.held_dtype(result)
    dtype = dtype if dtype in ELEMENT_CODES else DType.FLOAT32
    source = builder.plain(rows.source, dtype)
    return dtype, source, builder.result(result, Layout.plain(source.shape, dtype), over=source)


@kernel("RMSNormalization", refuses=_refuses_rows)
@kernel("RMSNormalization", domain=CPU_DOMAIN, refuses=_refuses_rows)
def lower_rms_normalization(node: Node, builder: PlanBuilder) -> None:
    """Lower to a native kernel, in place where it may; oneDNN has none."""
    rows = _Rows.of(node, builder)
    (result,) = node.outputs
    dtype, source, made = _source_and_result(rows, result, builder)
    if not made.layout.count:
        return
    bits = double_bits(float(node.attributes.get("epsilon", 1e-5)))
    parameters: Sequence[int] = (ELEMENT_CODES[dtype], rows.count, rows.length, bits)
    builder.native("rms_norm", (source, _factors(node, 1, rows, builder), made), parameters)


def _factors(node: Node, index: int, rows: _Rows, builder: PlanBuilder) -> Operand:
    """Return scale or shift as one row of float32; repeated where it is shorter."""
    value = node.inputs[index]
    assert value is not None
    shape = builder.shape(value)
    if math.prod(shape) == rows.length and shape[-len(rows.shape) :] == rows.shape:
        operand = builder.plain(value, DType.FLOAT32)
    else:
        operand = repeated(value, rows.shape, builder)
    return operand.viewed(Layout.plain((rows.length,), DType.FLOAT32))
