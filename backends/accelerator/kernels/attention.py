"""Attention of many heads: two matmuls, and a softmax in between.

The heads are never moved before a matmul: queries, keys and values are read as strided views.
Scores are float32, with scale and mask in the epilogue of the first matmul.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from ....runtime.graph import DType, Node, Value
from ..elementwise.fused_launch import fused_launch
from ..elementwise.fused_step import ACCELERATOR_DOMAIN, FusedStep
from ..launching.strided_copy import strided_copy
from ..launching.tiled_matmul import Matrices, launch_matmul
from ..operand import Operand
from ..plan_builder import PlanBuilder
from .epilogue import epilogue_code
from .registry import kernel
from .softmax import launch_softmax

__all__ = ["HeadColumns", "Heads", "lower_attention", "read_heads"]

_MASK = 3


@dataclass(frozen=True)
class HeadColumns:
    """Where the heads of queries, keys, values or the result lie side by side.

    That is in rows of ``pitch`` elements for each of a batch, from column ``first`` on.
    """

    value: Value
    rows: int
    pitch: int
    first: int = 0

    def strides(self, depth: int) -> tuple[int, int, int, int]:
        """Return those of (batch, heads, rows, depth), in elements."""
        return (self.rows * self.pitch, depth, self.pitch, 1)


@dataclass(frozen=True)
class Heads:
    """What an Attention node computes: softmax(scale * Q K' + mask) V for each head.

    Queries, keys, values and the result are (batch, rows, heads * depth), as far as the first ones
    are not columns of something wider; the mask broadcasts to (batch, heads, queries, keys).
    ``zeroes_empty_rows``: probabilities that are NaN are zero.
    """

    query: HeadColumns
    key: HeadColumns
    value: HeadColumns
    result: HeadColumns
    mask: Value | None
    batch: int
    heads: int
    depth: int
    scale: float
    zeroes_empty_rows: bool

    @property
    def queries(self) -> int:
        """How many rows of queries there are, and of results."""
        return self.query.rows

    @property
    def keys(self) -> int:
        """How many rows of keys there are, and of values."""
        return self.key.rows


def read_heads(node: Node, builder: PlanBuilder) -> Heads:
    """Read a fused node; see ``AttentionFusion`` and ``PackedAttention``."""
    firsts = node.attributes.get("columns", (0,) * _MASK)
    query, key, value = (
        _columns(value, int(first), builder)
        for value, first in zip(node.inputs[:_MASK], firsts, strict=True)
    )
    result = _columns(node.outputs[0], 0, builder)
    heads = int(node.attributes["num_heads"])
    return Heads(
        query,
        key,
        value,
        result,
        node.input_at(_MASK),
        builder.shape(node.outputs[0])[0],
        heads,
        result.pitch // heads,
        float(node.attributes["scale"]),
        bool(node.attributes.get("zero_empty_rows", 0)),
    )


def _columns(value: Value | None, first: int, builder: PlanBuilder) -> HeadColumns:
    assert value is not None
    _, rows, pitch = builder.shape(value)
    return HeadColumns(value, rows, pitch, first)


@kernel("Attention", domain=ACCELERATOR_DOMAIN)
def lower_attention(node: Node, builder: PlanBuilder) -> None:
    """Lower to a matmul, a softmax, a matmul, and a copy that brings the heads side by side."""
    found = read_heads(node, builder)
    made = builder.result(node.outputs[0])
    probabilities = _probabilities(node, found, made.dtype, builder)
    mixed = builder.temporary((found.batch, found.heads, found.queries, found.depth), made.dtype)
    dense = (found.queries * found.keys, found.keys, 1)
    launch_matmul(
        builder,
        Matrices(probabilities, dense[1:], (found.heads * dense[0], dense[0])),
        _matrices(found, found.value, builder),
        mixed,
        (found.batch, found.heads),
        (found.queries, found.depth, found.keys),
        partial(epilogue_code, node, builder, mixed),
    )
    strides = found.result.strides(found.depth)
    rows = (found.heads * found.queries * found.depth, found.queries * found.depth, found.depth, 1)
    strided_copy(builder, mixed, made, mixed.shape, rows, target_strides=strides)


def _probabilities(node: Node, found: Heads, held: DType, builder: PlanBuilder) -> Operand:
    """Lower to the softmax of scaled and masked scores."""
    keys = _matrices(found, found.key, builder)
    scores = builder.temporary((found.batch, found.heads, found.queries, found.keys), DType.FLOAT32)
    steps = [FusedStep("Scale", ("acc",), DType.FLOAT32, (found.scale,))]
    if found.mask is not None:
        steps.append(FusedStep("Add", ("s0", f"i{_MASK}"), DType.FLOAT32))
    launch_matmul(
        builder,
        _matrices(found, found.query, builder),
        replace(keys, strides=keys.strides[::-1]),
        scores,
        (found.batch, found.heads),
        (found.queries, found.keys, found.depth),
        partial(epilogue_code, node, builder, scores, first=steps),
    )
    made = scores if held is DType.FLOAT32 else builder.temporary(scores.shape, held)
    launch_softmax(builder, scores, made, axis=3)
    if found.zeroes_empty_rows:
        chosen = (
            FusedStep("IsNaN", ("i0",), DType.BOOL),
            FusedStep("Where", ("s0", "i1", "i0"), held),
        )
        fused_launch(builder, chosen, {"i0": made, "i1": 0.0}, made)
    return made


def _matrices(found: Heads, columns: HeadColumns, builder: PlanBuilder) -> Matrices:
    """See (batch, rows, width) as a matrix (rows, depth) for each batch and head."""
    batch, heads, row, column = columns.strides(found.depth)
    operand = builder.operand(columns.value)
    return Matrices(operand, (row, column), (batch, heads), columns.first)
