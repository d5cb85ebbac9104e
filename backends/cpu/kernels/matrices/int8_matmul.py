"""Matmuls of stored numbers with constant weights: int8 sums, scaled for each column."""

from __future__ import annotations

import math

from .....runtime.graph import DType, Node, Value
from ...onednn.bindings import ARG
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ...precision import has_native_int8
from ..registry import kernel
from .epilogue import Epilogue
from .matmul import as_matrices
from .native_int8 import lower_native_matmul

__all__ = ["lower_int8_matmul"]

Dims = tuple[int, ...]


@kernel("Int8MatMul", domain=CPU_DOMAIN, dtypes={DType.INT8, DType.UINT8})
def lower_int8_matmul(node: Node, builder: PlanBuilder) -> None:
    """Lower what the pass "int8 fusion" makes of a Gemm or MatMul; see there for its inputs."""
    source, weights, shifts, scales = map(_given, node.inputs[:4])
    (result,) = node.outputs
    shape, held = builder.shape(source), builder.held_dtype(result)
    is_turned = bool(node.attributes.get("transB", 0))
    lying = builder.shape(weights)
    inner, columns = (lying[1], lying[0]) if is_turned else lying
    rows = math.prod(shape[:-1])
    if len(shape) < 2 or shape[-1] != inner:
        raise builder.contradiction(f"there is no matmul of {shape} and {(inner, columns)}")
    builder.expect_shape(result, (*shape[:-1], columns))
    builder.expect_shape(shifts, (columns,))
    (count,) = builder.shape(scales)
    if count != 1:
        builder.expect_shape(scales, (columns,))
    engine = builder.engine
    if has_native_int8(engine.instruction_set):
        lower_native_matmul(node, builder, rows, (inner, columns), is_turned=is_turned)
        return
    left = as_matrices(builder.operand(source), (rows, inner))
    if left is None:
        plain = builder.plain(source)
        left = plain.viewed(Layout.plain((rows, inner), plain.dtype))
    epilogue = Epilogue(
        node,
        builder,
        lambda dims: _fit(dims, (rows, columns)),
        scales=(0 if count == 1 else 0b10, count),
    )
    bias = engine.desc((1, columns), DType.FLOAT32)
    pd = engine.primitive_desc(
        "matmul",
        engine,
        left.layout.desc(engine),
        engine.any_desc((inner, columns), DType.INT8),
        bias,
        engine.desc((rows, columns), held),
        epilogue.attributes,
    )
    array = builder.constant(weights)
    assert array is not None
    own = engine.desc((inner, columns), DType.INT8, (1, inner) if is_turned else None)
    reads = {
        ARG.SRC: left,
        ARG.WEIGHTS: builder.packed(array, own, pd.desc("weights")),
        ARG.BIAS: builder.reordered(shifts, bias),
        ARG.WEIGHT_SCALES: builder.operand(scales),
        **epilogue.arguments(pd),
    }
    builder.primitive(pd, reads, {ARG.DST: epilogue.result(result, pd)})


def _fit(dims: Dims, result: Dims) -> Dims:
    """View an operand of a step as one number, a row for all, or a whole matrix."""
    if math.prod(dims) == 1:
        return (1, 1)
    return (1, result[1]) if dims[-1] == result[1] == math.prod(dims) else result


def _given(value: Value | None) -> Value:
    assert value is not None
    return value
