"""Quantised values: from and to float32, around operators that compute in float32."""

from __future__ import annotations

from collections.abc import Sequence

from .....runtime.graph import DType, Node, TensorType, Value
from ...onednn.post_ops import CPU_DOMAIN, PostOp
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..numpy_operators import lower_by_numpy, refuses_operator
from ..registry import FLOATS, kernel
from .fused_elementwise import lower_elementwise, result_layout

__all__ = ["lower_dequantize", "lower_quantize", "lower_table"]

_RANGES = {
    DType.INT8: (-128, 127),
    DType.UINT8: (0, 255),
    DType.INT16: (-32768, 32767),
    DType.UINT16: (0, 65535),
}
_DYNAMIC = (DType.UINT8, DType.FLOAT32, DType.UINT8)
_STORED = frozenset({*_RANGES, DType.INT32})
_SMALL = frozenset(
    {
        DType.INT4,
        DType.UINT4,
        DType.INT2,
        DType.UINT2,
        DType.FLOAT4E2M1,
        DType.FLOAT8E4M3FN,
        DType.FLOAT8E4M3FNUZ,
        DType.FLOAT8E5M2,
        DType.FLOAT8E5M2FNUZ,
    }
)
"""What only numpy dequantises and stores."""


def _is_for_numpy(node: Node) -> bool:
    """True for blocks, for scales that are not of float32, and for stored numbers of few bits."""
    if node.attributes.get("block_size", 0):
        return True
    source, scale = _dtype_of(node.inputs[0]), _dtype_of(node.inputs[1])
    result = _dtype_of(node.outputs[0])
    real, stored = (scale, source) if node.op_type == "DequantizeLinear" else (source, result)
    is_of_floats = all(item is None or item in FLOATS for item in (scale, real))
    if node.op_type == "QuantizeLinear" and source is DType.INT32:
        is_of_floats = scale is None or scale in FLOATS
    makes_floats = node.op_type == "QuantizeLinear" or result is None or result in FLOATS
    return not (is_of_floats and makes_floats and (stored is None or stored in _STORED))


def _refuses(node: Node) -> str | None:
    return refuses_operator(node) if _is_for_numpy(node) else None


@kernel("DequantizeLinear", dtypes=_STORED | _SMALL, refuses=_refuses)
def lower_dequantize(node: Node, builder: PlanBuilder) -> None:
    """Lower (x - zero point) * scale, with one scale or one for each channel."""
    source, scale, zero = [*node.inputs, None][:3]
    assert source is not None
    assert scale is not None
    if _is_for_numpy(node):
        lower_by_numpy(node, builder)
        return
    others, steps = [_along(node, builder, scale)], [PostOp.binary("mul", 1)]
    if zero is not None:
        others.append(_along(node, builder, zero))
        steps.insert(0, PostOp.binary("sub", 2))
    lower_elementwise(builder, [source], node.outputs[0], steps, others=others)


@kernel(
    "QuantizeLinear",
    dtypes=FLOATS | {DType.INT32, DType.FLOAT16, DType.BFLOAT16},
    refuses=_refuses,
)
def lower_quantize(node: Node, builder: PlanBuilder) -> None:
    """Lower round(x / scale) + zero point, kept in the range of the result's type.

    NaN is stored as the least number of it.
    """
    source, scale, zero = [*node.inputs, None][:3]
    assert source is not None
    assert scale is not None
    if _is_for_numpy(node):
        lower_by_numpy(node, builder)
        return
    others = [_along(node, builder, scale)]
    steps = [PostOp.binary("div", 1), PostOp.unary("round")]
    if zero is not None:
        others.append(_along(node, builder, zero))
        steps.append(PostOp.binary("add", 2))
    low, high = map(float, _RANGES[builder.dtype(node.outputs[0])])
    if low < 0.0:  # else the cast makes 0 of NaN
        steps.append(PostOp("thresholded", low, low))
    steps.append(PostOp.unary("clip", low, high))
    lower_elementwise(builder, [source], node.outputs[0], steps, others=others)


@kernel("DynamicQuantizeLinear")
def lower_dynamic_quantize(node: Node, builder: PlanBuilder) -> None:
    """Lower a quantisation whose scale the data give; NaN and infinities are stored as 0 or 255."""
    (source,), results = node.inputs, node.outputs
    assert source is not None
    operand = builder.plain(source, DType.FLOAT32)
    shapes = (operand.shape, (), ())
    made = []
    for value, shape, dtype in zip(results, shapes, _DYNAMIC, strict=False):
        builder.expect_shape(value, shape)
        made.append(builder.result(value, Layout.plain(shape, dtype)))
    for shape, dtype in list(zip(shapes, _DYNAMIC, strict=True))[len(made) :]:
        made.append(builder.temporary(Layout.plain(shape, dtype)))
    builder.native("dynamic_quantize", (operand, *made), (operand.layout.count,))


@kernel("Int8Table", domain=CPU_DOMAIN, dtypes={DType.INT8, DType.UINT8})
def lower_table(node: Node, builder: PlanBuilder) -> None:
    """Lower what the pass "int8 tables" makes: bytes, each of which says where its result is."""
    source, table = node.inputs
    assert source is not None
    assert table is not None
    (result,) = node.outputs
    builder.expect_shape(result, builder.shape(source))
    layout, given = result_layout(builder, [source], result), builder.operand(source)
    if layout.strides is None or layout.strides != given.layout.strides:
        given = builder.plain(source)
        layout = Layout.plain(given.shape, layout.dtype)
    made = builder.result(result, layout)
    if made.layout.count:
        builder.native("look_up", (given, builder.plain(table), made), (made.layout.count,))


def _along(node: Node, builder: PlanBuilder, value: Value) -> Operand:
    """View one number, or a row of them, so that it broadcasts along the node's axis."""
    assert node.inputs[0] is not None
    given = builder.shape(node.inputs[0])
    builder.expect_shape(node.outputs[0], given)
    operand, rank = builder.plain(value), len(given)
    shape = operand.shape
    lengths: Sequence[int] = ()
    if operand.layout.count != 1:
        axis = builder.axis(int(node.attributes.get("axis", 1)), rank)
        builder.expect_shape(value, given[axis : axis + 1])
        lengths = [shape[0] if index == axis else 1 for index in range(rank)]
    return operand.viewed(Layout.plain(lengths, operand.dtype))


def _dtype_of(value: Value | None) -> DType | None:
    kind = None if value is None else value.type
    return kind.dtype if isinstance(kind, TensorType) else None
