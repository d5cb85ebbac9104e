"""Attention of many heads: two products, and a softmax in between.

The heads are never moved before a product: queries, keys and values are read as strided views.
Scores are float32, with scale and mask in the epilogue of the first product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...graph import DType, Node, Value
from ..chain import ACCELERATOR_DOMAIN, ChainStep
from ..chain_launch import chain_launch
from ..operand import Operand
from ..plan_builder import PlanBuilder
from ..product import Matrices, launch_product
from ..strided_copy import strided_copy
from .epilogue import epilogue_code
from .registry import kernel
from .softmax import launch_softmax

__all__ = ["Heads", "lower_attention", "read_heads"]

_MASK = 3


@dataclass(frozen=True)
class Heads:
    """What an Attention node computes: softmax(scale * Q K' + mask) V for each head.

    Queries, keys, values and the result are (batch, rows, heads * depth); the mask broadcasts to
    (batch, heads, queries, keys). ``zeroes_empty_rows``: probabilities that are NaN are zero.
    """

    query: Value
    key: Value
    value: Value
    mask: Value | None
    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    scale: float
    zeroes_empty_rows: bool

    def strides(self, rows: int) -> tuple[int, int, int, int]:
        """Give those of (batch, heads, rows, depth) where the heads lie side by side."""
        width = self.heads * self.depth
        return (rows * width, self.depth, width, 1)


def read_heads(node: Node, builder: PlanBuilder) -> Heads:
    """Read a fused node; see ``AttentionFusion``."""
    query, key, value = node.inputs[:_MASK]
    assert query is not None
    assert key is not None
    assert value is not None
    batch, queries, width = builder.shape(query)
    heads = int(node.attributes["num_heads"])
    return Heads(
        query,
        key,
        value,
        node.inputs[_MASK] if len(node.inputs) > _MASK else None,
        batch,
        heads,
        queries,
        builder.shape(key)[1],
        width // heads,
        float(node.attributes["scale"]),
        bool(node.attributes.get("zero_empty_rows", 0)),
    )


@kernel("Attention", domain=ACCELERATOR_DOMAIN)
def lower_attention(node: Node, builder: PlanBuilder) -> None:
    """Lower to a product, a softmax, a product, and a copy that brings the heads side by side."""
    found = read_heads(node, builder)
    made = builder.result(node.outputs[0])
    probabilities = _probabilities(node, found, made.dtype, builder)
    mixed = builder.temporary((found.batch, found.heads, found.queries, found.depth), made.dtype)
    dense = (found.queries * found.keys, found.keys, 1)
    launch_product(
        builder,
        Matrices(probabilities, dense[1:], (found.heads * dense[0], dense[0])),
        _matrices(found, builder.operand(found.value)),
        mixed,
        (found.batch, found.heads),
        (found.queries, found.depth, found.keys),
        partial(epilogue_code, node, builder, mixed),
    )
    strides = found.strides(found.queries)
    rows = (found.heads * found.queries * found.depth, found.queries * found.depth, found.depth, 1)
    strided_copy(builder, mixed, made, mixed.shape, rows, target_strides=strides)


def _probabilities(node: Node, found: Heads, held: DType, builder: PlanBuilder) -> Operand:
    """Lower to the softmax of scaled and masked scores."""
    keys = _matrices(found, builder.operand(found.key))
    scores = builder.temporary((found.batch, found.heads, found.queries, found.keys), DType.FLOAT32)
    steps = [ChainStep("Scale", ("acc",), DType.FLOAT32, (found.scale,))]
    if found.mask is not None:
        steps.append(ChainStep("Add", ("s0", f"i{_MASK}"), DType.FLOAT32))
    launch_product(
        builder,
        _matrices(found, builder.operand(found.query)),
        Matrices(keys.operand, keys.strides[::-1], keys.batch),
        scores,
        (found.batch, found.heads),
        (found.queries, found.keys, found.depth),
        partial(epilogue_code, node, builder, scores, first=steps),
    )
    made = scores if held is DType.FLOAT32 else builder.temporary(scores.shape, held)
    launch_softmax(builder, scores, made, axis=3)
    if found.zeroes_empty_rows:
        chosen = (
            ChainStep("IsNaN", ("i0",), DType.BOOL),
            ChainStep("Where", ("s0", "i1", "i0"), held),
        )
        chain_launch(builder, chosen, {"i0": made, "i1": 0.0}, made)
    return made


def _matrices(found: Heads, operand: Operand) -> Matrices:
    """See (batch, rows, width) as a matrix (rows, depth) for each batch and head."""
    batch, heads, *matrix = found.strides(operand.shape[1])
    return Matrices(operand, (matrix[0], matrix[1]), (batch, heads))
