"""Type of Attention: the result, and the keys, values and scores that it may give, too.

Letters: N sequences, Hq and H heads of queries and of keys, L queries, S keys, P keys of the past,
E and F the sizes of a key and of a value. With three axes, heads and sizes are one axis.
"""

from __future__ import annotations

from ..graph import Dim, Node, Shape, TensorType
from .dims import agree, is_contradiction, merge, total
from .operands import integer, operand
from .rules import type_rule
from .shape_content import ShapeContent


@type_rule("Attention")
def attention(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Y as the queries with F for E; present keys, present values; scores (N, Hq, L, P + S)."""
    q, k, v = operand(node, 0), operand(node, 1), operand(node, 2)
    if q is None or k is None or v is None or q.dtype is not k.dtype:
        return None
    heads = _by_heads(node, q.shape, k.shape, v.shape)
    if heads is None:
        return None
    queries, keys, values = heads
    if not _fit(queries, keys, values):
        return None
    present_key = _present(node, 4, keys)
    present_value = _present(node, 5, values)
    if present_key is None or present_value is None:
        return None
    batch, length = queries[0], queries[2]
    types = [TensorType(q.dtype, _result(queries, values, len(q.shape)))]
    types.append(TensorType(k.dtype, present_key))
    types.append(TensorType(v.dtype, present_value))
    types.append(TensorType(q.dtype, (batch, queries[1], length, present_key[2])))
    return types


def _by_heads(node: Node, *shapes: Shape) -> list[Shape] | None:
    """Give the shapes of queries, keys and values as (N, heads, length, size)."""
    ranks = {len(shape) for shape in shapes}
    if ranks == {4}:
        return list(shapes)
    q_heads, heads = integer(node, "q_num_heads"), integer(node, "kv_num_heads")
    if ranks != {3} or q_heads is None or heads is None or min(q_heads, heads) < 1:
        return None
    split: list[Shape] = []
    for shape, count in zip(shapes, (q_heads, heads, heads), strict=True):
        batch, length, width = shape
        size = width // count if isinstance(width, int) else None
        if isinstance(width, int) and width % count:
            return None
        split.append((batch, count, length, size))
    return split


def _fit(queries: Shape, keys: Shape, values: Shape) -> bool:
    """True if the three may belong together: batch, heads, lengths and sizes."""
    if is_contradiction(keys[:3], values[:3]) or not agree(queries[0], keys[0]):
        return False
    if not agree(queries[3], keys[3]) or not agree(queries[0], values[0]):
        return False
    groups, heads = queries[1], keys[1]
    if isinstance(groups, int) and isinstance(heads, int):
        return heads > 0 and groups % heads == 0
    return True


def _present(node: Node, index: int, new: Shape) -> Shape | None:
    """Put the new keys, or values, after those of the past, if any; None if they do not fit."""
    past = operand(node, index)
    if past is None:
        return new
    if len(past.shape) != 4:
        return None
    length = total((past.shape[2], new[2]))
    return merge((*past.shape[:2], length, past.shape[3]), (*new[:2], length, new[3]))


def _result(queries: Shape, values: Shape, rank: int) -> Shape:
    batch, heads, length, size = *queries[:3], values[3]
    if rank == 4:
        return (batch, heads, length, size)
    width: Dim = heads * size if isinstance(heads, int) and isinstance(size, int) else None
    return (batch, length, width)
