"""Matmuls with weights of 16 bits, which a native kernel widens while it multiplies."""

from __future__ import annotations

import math

from .....runtime.graph import DType, Node, Value
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder

__all__ = ["lower_half_matmul"]


def lower_half_matmul(
    node: Node, builder: PlanBuilder, data: Value, weights: Value, bias: Value | None, parts: int
) -> None:
    """Lower a ``PackedMatMul`` of 16 bits, whose weights are (columns, inner), in ``parts``.

    Raises what ``builder.contradiction`` makes for shapes that are no matmul.
    """
    (result,) = node.outputs
    inner, stored = int(node.attributes["inner"]), int(node.attributes["stored"])
    shape, columns = builder.shape(data), builder.shape(weights)[0]
    if not shape or shape[-1] != inner:
        raise builder.contradiction(f"there is no matmul of {list(shape)} and {inner} rows")
    builder.expect_shape(weights, (columns, inner))
    builder.expect_shape(result, (*shape[:-1], columns))
    if bias is not None:
        builder.expect_shape(bias, (columns,))
    rows = math.prod(shape[:-1])
    made = builder.result(result, Layout.plain(builder.shape(result), DType.FLOAT32))
    if rows == 0:
        return
    reads = [builder.plain(data, DType.FLOAT32), builder.plain(weights)]
    if bias is not None:
        reads.append(builder.plain(bias))
    words = (rows, inner, columns, stored, bias is not None, parts)
    builder.native("half_matmul", [*reads, made], words)
