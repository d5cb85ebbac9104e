"""LayerNormalization and RMSNormalization: rows of the last axes, standard and fused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_float, c_int, c_uint
from dataclasses import dataclass

import numpy as np

from ....runtime.graph import DType, Node, TensorType, Value
from ....runtime.lowering.normalization import find_other_precision
from ..native.step_runner import double_bits
from ..onednn.bindings import ARG, ELTWISE, FORWARD_INFERENCE, Attributes
from ..onednn.post_ops import CPU_DOMAIN, PostOp
from ..plans.operand_layout import Layout, Operand
from ..plans.plan_builder import PlanBuilder
from .attention import ELEMENT_CODES
from .epilogue import repeated
from .registry import kernel

_FORWARD_TRAINING = 64
_USE_SCALE, _USE_SHIFT = 2, 4


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
    """Lower with oneDNN, in place where it may; statistics are float32 whatever the data is."""
    rows = _Rows.of(node, builder)
    result, *statistics = node.outputs
    engine, held = builder.engine, builder.held_dtype(result)
    source = builder.plain(rows.source, held)
    made = builder.result(result, Layout.plain(source.shape, held), over=source)
    is_asked = any(value.uses or value.is_graph_output for value in statistics)
    outer = (*rows.outer, *(1 for _ in rows.shape))
    for value in statistics if is_asked else ():
        builder.expect_shape(value, outer)
    if not made.layout.count:
        for value in statistics:  # a mean of no elements is none
            builder.define_constant(value, np.full(outer, np.nan, np.float32))
        return
    kept = [builder.result(value, Layout.plain(outer, DType.FLOAT32)) for value in statistics]
    flat = Layout.plain((rows.count, rows.length), held)
    flags = _USE_SCALE
    reads = {ARG.SRC: source.viewed(flat), ARG.SCALE: _factors(node, 1, rows, builder)}
    if node.input_at(2) is not None:
        flags |= _USE_SHIFT
        reads[ARG.SHIFT] = _factors(node, 2, rows, builder)
    pd = engine.primitive_desc(
        "layer_normalization_forward",
        engine,
        c_int(_FORWARD_TRAINING if is_asked else FORWARD_INFERENCE),
        flat.desc(engine),
        flat.desc(engine),
        engine.desc((rows.count,), DType.FLOAT32) if is_asked else None,
        c_float(node.attributes.get("epsilon", 1e-5)),
        c_uint(flags),
        Attributes(engine),
    )
    writes = {ARG.DST: made.viewed(flat)}
    if is_asked:
        row = Layout.plain((rows.count,), DType.FLOAT32)
        places = [item.viewed(row) for item in kept]
        places += [builder.temporary(row) for _ in range(2 - len(places))]
        writes |= {ARG.MEAN: places[0], ARG.VARIANCE: places[1]}
        builder.primitive(pd, reads, writes)
        _invert(builder, places[1], float(node.attributes.get("epsilon", 1e-5)))
    else:
        builder.primitive(pd, reads, writes)


def _invert(builder: PlanBuilder, variance: Operand, epsilon: float) -> None:
    """Turn variances into one over the deviation, in place."""
    engine = builder.engine
    desc = variance.layout.desc(engine)
    pd = engine.primitive_desc(
        "eltwise_forward",
        engine,
        c_int(FORWARD_INFERENCE),
        c_int(ELTWISE["linear"]),
        desc,
        desc,
        c_float(1.0),
        c_float(epsilon),
        Attributes(engine, [(PostOp.unary("pow", 1.0, -0.5), None)]),
    )
    builder.primitive(pd, {ARG.SRC: variance}, {ARG.DST: variance})


@kernel("RMSNormalization", refuses=_refuses_rows)
@kernel("RMSNormalization", domain=CPU_DOMAIN, refuses=_refuses_rows)
def lower_rms_normalization(node: Node, builder: PlanBuilder) -> None:
    """Lower to a native kernel, in place where it may; oneDNN has none."""
    rows = _Rows.of(node, builder)
    (result,) = node.outputs
    dtype = builder.operand(rows.source).dtype
    dtype = dtype if dtype in ELEMENT_CODES else DType.FLOAT32
    source = builder.plain(rows.source, dtype)
    made = builder.result(result, Layout.plain(source.shape, dtype), over=source)
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
