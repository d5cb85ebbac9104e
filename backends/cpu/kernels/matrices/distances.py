"""Distances between all pairs of rows of two matrices."""

from __future__ import annotations

from collections.abc import Mapping

from .....runtime.graph import DType, Node
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..registry import kernel

__all__ = ["lower_distances"]

_KINDS: Mapping[str, int] = {"ReduceSumSquare": 0, "ReduceL2": 1, "ReduceL1": 2}
"""Numbered as in native_matmul.c."""


@kernel("PairDistances", domain=CPU_DOMAIN)
def lower_distances(node: Node, builder: PlanBuilder) -> None:
    """Lower what a reduction makes of the differences of rows (rows, 1, k) and (others, k)."""
    given, (result,) = [value for value in node.inputs if value is not None], node.outputs
    rows, others = (builder.plain(value, DType.FLOAT32) for value in given)
    count, length, other_count = rows.shape[0], rows.shape[-1], others.shape[-2]
    made = builder.result(result, Layout.plain((count, other_count), DType.FLOAT32))
    builder.expect_shape(result, (count, other_count))
    if made.layout.count:
        kind = _KINDS[str(node.attributes["kind"])]
        parameters = (kind, count, other_count, length)
        builder.native("pair_distances", (rows, others, made), parameters)
