"""Type of Attention: the result, and the keys, values and scores that it may give, too.

Letters: N sequences, Hq and H heads of queries and of keys, L queries, S keys, P keys of the past,
E and F the sizes of a key and of a value. With three axes, heads and sizes are one axis.
"""

from __future__ import annotations

from ...graph import Dim, DType, Node, Shape, TensorType, shape_text
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import merge, spreads_over, total
from ..operands import (
    Operand,
    integer,
    operand,
    require_length,
    require_rank,
    require_same_type,
    require_shape,
)
from ..rules import type_rule


@type_rule("Attention")
def attention(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Y as the queries with F for E; present keys, present values; scores (N, Hq, L, P + S)."""
    q, k, v = operand(node, 0), operand(node, 1), operand(node, 2)
    if q is None or k is None or v is None:
        return None
    require_same_type("queries and keys", q, k)
    queries, keys, values = _by_heads(node, q.shape, k.shape, v.shape)
    _check_fit(queries, keys, values)
    if (operand(node, 4) is None) != (operand(node, 5) is None):
        raise ContradictionError("there are keys or values of the past, and not both")
    present_key = _present(node, 4, keys, "the keys of the past")
    present_value = _present(node, 5, values, "the values of the past")
    require_length("the number of values of the past and now", present_value[2], present_key[2])
    scores = (*queries[:3], present_key[2])
    mask, counts = operand(node, 3), operand(node, 6)
    if mask is not None:
        _check_mask(mask, q, scores)
    if counts is not None:
        require_shape("the list of numbers of keys", counts, queries[0])
    types = [TensorType(q.dtype, _result(queries, values, len(q.shape)))]
    types.append(TensorType(k.dtype, present_key))
    types.append(TensorType(v.dtype, present_value))
    types.append(TensorType(q.dtype, scores))
    return types


def _by_heads(node: Node, *shapes: Shape) -> list[Shape]:
    """Return the shapes of queries, keys and values as (N, heads, length, size)."""
    ranks = {len(shape) for shape in shapes}
    q_heads, heads = integer(node, "q_num_heads", 0) or 0, integer(node, "kv_num_heads", 0) or 0
    if min(q_heads, heads) < 0:
        raise ContradictionError(f"{min(q_heads, heads)} is no number of heads")
    if ranks == {4}:
        return list(shapes)
    texts = ", ".join(map(shape_text, shapes))
    if ranks != {3}:
        raise ContradictionError(f"queries, keys and values {texts} have to have 3 axes, or 4")
    split: list[Shape] = []
    for shape, count in zip(shapes, (q_heads, heads, heads), strict=True):
        batch, length, width = shape
        if count < 1 or (isinstance(width, int) and width % count):
            raise ContradictionError(
                f"of queries, keys and values {texts} rows of {width} are no {count} heads"
            )
        size = width // count if isinstance(width, int) else None
        split.append((batch, count, length, size))
    return split


def _check_fit(queries: Shape, keys: Shape, values: Shape) -> None:
    """Raise unless the three may belong together: batch, heads, lengths and sizes."""
    pairs = (
        ("batches of keys", keys[0], queries[0]),
        ("batches of values", values[0], queries[0]),
        ("number of heads of the values", values[1], keys[1]),
        ("number of values", values[2], keys[2]),
        ("size of a key", keys[3], queries[3]),
    )
    for what, given, wanted in pairs:
        require_length(f"the {what}", given, wanted)
    groups, heads = queries[1], keys[1]
    if isinstance(groups, int) and isinstance(heads, int) and (heads < 1 or groups % heads):
        raise ContradictionError(f"{groups} heads of queries cannot share {heads} heads of keys")


def _check_mask(mask: Operand, q: Operand, scores: Shape) -> None:
    """Raise for a mask that cannot be spread over the scores; it may tell of fewer keys."""
    if mask.dtype is not DType.BOOL:
        require_same_type("queries and a mask that is added", q, mask)
    require_rank("the mask", mask, 1, 4)
    masked, count = mask.shape[-1], scores[3]
    is_longer = isinstance(masked, int) and isinstance(count, int) and masked > max(count, 1)
    if is_longer or not spreads_over(mask.shape[:-1], scores[:3]):
        raise ContradictionError(
            f"the mask of shape {shape_text(mask.shape)} cannot be spread over scores of shape "
            f"{shape_text(scores)}"
        )


def _present(node: Node, index: int, new: Shape, what: str) -> Shape:
    """Put the new keys, or values, after those of the past, if any."""
    past = operand(node, index)
    if past is None:
        return new
    require_rank(what, past, 4)
    require_shape(what, past, *new[:2], None, new[3])
    length = total((past.shape[2], new[2]))
    return merge((*past.shape[:2], length, past.shape[3]), (*new[:2], length, new[3]))


def _result(queries: Shape, values: Shape, rank: int) -> Shape:
    batch, heads, length, size = *queries[:3], values[3]
    if rank == 4:
        return (batch, heads, length, size)
    width: Dim = heads * size if isinstance(heads, int) and isinstance(size, int) else None
    return (batch, length, width)
