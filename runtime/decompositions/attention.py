"""onnxruntime's attention operators, as the matmuls and the softmax that they are made of.

Letters: B sequences, N and M heads of queries and of keys, S new queries, P past keys, T = P + S,
H the size of a head. Values of heads are (B, N, S, H).
"""

from __future__ import annotations

from ..graph import DType, Value
from .composition import Composition, CompositionError
from .heads import (
    as_addition,
    by_heads,
    count_of,
    keys_turned,
    length_of,
    lowest,
    merged,
    part_of,
    refuse_attributes,
    refuse_inputs,
    scale_of,
)
from .registry import decomposition

__all__ = ["attention", "rotated"]


@decomposition("Attention")
def attention(made: Composition) -> list[Value | None]:
    """x, weights of Q, K and V side by side, their bias; mask, past, what is added to scores."""
    refuse_attributes(made, "do_rotary", "past_present_share_buffer")
    refuse_inputs(made, 6)
    given, count = made.node.attributes, count_of(made, "num_heads")
    width = length_of(made, made.given(1), -1)
    sizes = [int(size) for size in given.get("qkv_hidden_sizes") or [width // 3] * 3]
    if sum(sizes) != width or len(sizes) != 3:
        raise CompositionError(f"its weights have {width} columns for {sizes}")
    joined = made.add("MatMul", made.given(0), made.given(1))
    bias = made.optional(2)
    if bias is not None:
        joined = made.add("Add", joined, bias)
    parts = made.add_many("Split", 3, joined, made.integers(*sizes), axis=-1)
    q, k, v = (
        by_heads(made, part, count, size // count) for part, size in zip(parts, sizes, strict=True)
    )
    past = made.optional(4)
    if past is not None:
        k, v = (
            made.add("Concat", made.add("Gather", past, made.scalar(place)), now, axis=2)
            for place, now in enumerate((k, v))
        )
    present = None
    if len(made.node.outputs) > 1:
        pair = [made.add("Unsqueeze", item, made.integers(0)) for item in (k, v)]
        present = made.add("Concat", *pair, axis=0)
    added = [
        *_causal(made, q, k),
        *_padding(made, made.optional(3), k),
        *([] if made.optional(5) is None else [made.given(5)]),
    ]
    scores = _scores(made, q, k, scale_of(made, sizes[0] // count), added)
    return [merged(made, _attended(made, scores, v), sizes[2]), present]


@decomposition("MultiHeadAttention")
def multi_head_attention(made: Composition) -> list[Value | None]:
    """Q, K, V, their bias, mask of keys, what is added to scores, past keys and values.

    The fourth output is what the softmax is taken of.
    """
    refuse_inputs(made, 8)
    count = count_of(made, "num_heads")
    q, k, v, sizes = _queries_keys_values(made, count)
    pasts = made.optional(6), made.optional(7)
    if (pasts[0] is None) != (pasts[1] is None):
        raise CompositionError("there are past keys or values, and not both")
    if pasts[0] is not None:
        k, v = (
            made.add("Concat", old, now, axis=2) for old, now in zip(pasts, (k, v), strict=True)
        )
    added = [
        *_causal(made, q, k),
        *_padding(made, made.optional(4), k),
        *([] if made.optional(5) is None else [made.given(5)]),
    ]
    scores = _scores(made, q, k, scale_of(made, sizes[0] // count), added)
    result = merged(made, _attended(made, scores, v), sizes[1])
    return [result, _own(made, k), _own(made, v), scores]


def _own(made: Composition, value: Value) -> Value | None:
    """Return a value that the composition makes, also where it is an input of the node."""
    return value if value.producer in made.nodes else made.add("Identity", value)


def _queries_keys_values(
    made: Composition, count: int
) -> tuple[Value, Value, Value, tuple[int, int]]:
    """Return the three by heads, and the widths of queries and of values, from any of the forms."""
    query, key, value, bias = (made.optional(index) for index in range(4))
    assert query is not None
    if key is None or value is None or made.rank(key) not in (3, 4):
        raise CompositionError("its keys and values are packed")
    width = length_of(made, query, 2)
    if made.rank(key) == 4:
        if bias is not None:
            query = made.add("Add", query, part_of(made, bias, 0, width))
        size = length_of(made, value, 3)
        return by_heads(made, query, count, width // count), key, value, (width, size * count)
    value_width = length_of(made, value, 2)
    if bias is not None:
        query = made.add("Add", query, part_of(made, bias, 0, width))
        key = made.add("Add", key, part_of(made, bias, width, 2 * width))
        value = made.add("Add", value, part_of(made, bias, 2 * width, 2 * width + value_width))
    q, k = (by_heads(made, item, count, width // count) for item in (query, key))
    v = by_heads(made, value, count, value_width // count)
    return q, k, v, (width, value_width)


@decomposition("RotaryEmbedding")
def rotary_embedding(made: Composition) -> list[Value]:
    """X by rows or by heads, positions or the first one, cosines, sines."""
    refuse_attributes(made, "is_packed_batching")
    given = made.node.attributes
    x, places, cosines, sines = (made.given(index) for index in range(4))
    if float(given.get("scale", 1.0)) != 1.0:
        raise CompositionError("it has a scale")
    part, is_rows = int(given.get("rotary_embedding_dim", 0)), made.rank(x) == 3
    width = length_of(made, x, -1)
    if is_rows:
        count = (
            int(given.get("num_heads", 0)) if part else width // (2 * length_of(made, cosines, 1))
        )
        if count < 1 or width % count:
            raise CompositionError(f"rows of {width} are no {count} heads")
        heads = by_heads(made, x, count, width // count)
    else:
        heads = x
    if made.rank(places) == 1:
        length = made.add("Squeeze", made.add("Shape", heads, start=2, end=3))
        steps = made.add("Range", made.scalar(0), length, made.scalar(1))
        places = made.add("Unsqueeze", made.add("Add", steps, places), made.integers(0))
    size = width // count if is_rows else width
    is_interleaved = bool(given.get("interleaved", 0))
    if is_rows and 2 * length_of(made, cosines, 1) <= size:
        whole = _turned_whole(made, x, size, places, (cosines, sines), is_interleaved)
        if whole is not None:
            return [whole]
    turned = rotated(made, heads, size, places, (cosines, sines), is_interleaved)
    return [merged(made, turned, width) if is_rows else turned]


def rotated(
    made: Composition,
    x: Value,
    size: int,
    places: Value,
    tables: tuple[Value, Value],
    is_interleaved: bool,
) -> Value:
    """Turn pairs of the first elements of each head by the angle of its place, (B, S)."""
    half = length_of(made, tables[0], 1)
    if 2 * half > size:
        raise CompositionError(f"angles of {2 * half} elements are more than a head of {size} has")
    whole = _turned_whole(made, x, size, places, tables, is_interleaved)
    if whole is not None:
        return whole
    rest = None
    if 2 * half < size:
        x, rest = made.add_many("Split", 2, x, made.integers(2 * half, size - 2 * half), axis=-1)
    cosines, sines = (
        made.add("Unsqueeze", made.add("Gather", table, places), made.integers(1))
        for table in tables
    )
    if is_interleaved:
        pairs = made.add("Reshape", x, made.integers(0, 0, 0, half, 2))
        one, other = (made.add("Gather", pairs, made.scalar(at), axis=4) for at in (0, 1))
    else:
        one, other = made.add_many("Split", 2, x, made.integers(half, half), axis=-1)
    first = made.add("Sub", made.add("Mul", one, cosines), made.add("Mul", other, sines))
    second = made.add("Add", made.add("Mul", one, sines), made.add("Mul", other, cosines))
    if is_interleaved:
        both = [made.add("Unsqueeze", item, made.integers(4)) for item in (first, second)]
        joined = made.add("Concat", *both, axis=4)
        turned = made.add("Reshape", joined, made.integers(0, 0, 0, 2 * half))
    else:
        turned = made.add("Concat", first, second, axis=-1)
    return turned if rest is None else made.add("Concat", turned, rest, axis=-1)


def _turned_whole(
    made: Composition,
    x: Value,
    size: int,
    places: Value,
    tables: tuple[Value, Value],
    is_interleaved: bool,
) -> Value | None:
    """Turn heads, or rows of heads, by ONNX's own operator, where the device has that; else None.

    It wants places for each sequence.
    """
    if "RotaryEmbedding" not in made.whole_ops or made.rank(places) != 2:
        return None
    known = made.shape(x)[0]
    if known is None or made.shape(places)[0] != known or made.dtype(places) is not DType.INT64:
        return None
    attributes = {"interleaved": int(is_interleaved)}
    turned = 2 * length_of(made, tables[0], 1)
    if turned < size:
        attributes["rotary_embedding_dim"] = turned
    if made.rank(x) == 3:
        attributes["num_heads"] = length_of(made, x, 2) // size
    return made.add("RotaryEmbedding", x, *tables, places, **attributes)


def _scores(made: Composition, q: Value, k: Value, scale: float, added: list[Value]) -> Value:
    """Return q k^T scale + what is added, by heads."""
    turned = keys_turned(made, k)
    scores = made.add("Mul", made.add("MatMul", q, turned), made.number(scale, q))
    for item in added:
        scores = made.add("Add", scores, item)
    return scores


def _attended(made: Composition, scores: Value, v: Value) -> Value:
    return made.add("MatMul", made.add("Softmax", scores, axis=-1), v)


def _causal(made: Composition, q: Value, k: Value) -> list[Value]:
    """Exclude later keys, where the node is unidirectional; the last query sees the last key."""
    if not int(made.node.attributes.get("unidirectional", 0)):
        return []
    rows, columns = (
        made.add("Squeeze", made.add("Shape", item, start=2, end=3)) for item in (q, k)
    )
    lines = made.add("Range", made.scalar(0), rows, made.scalar(1))
    lines = made.add("Add", lines, made.add("Sub", columns, rows))
    steps = made.add("Range", made.scalar(0), columns, made.scalar(1))
    allowed = made.add("LessOrEqual", steps, made.add("Unsqueeze", lines, made.integers(1)))
    return [as_addition(made, allowed, q, lowest(made, q))]


def _padding(made: Composition, mask: Value | None, k: Value) -> list[Value]:
    """Make an addition of a mask of keys: (B, T), (B, S, T), or where each sequence ends.

    A list of 2 B numbers has all ends, then all starts.
    """
    if mask is None:
        return []
    rank = made.rank(mask)
    if rank == 1:
        allowed = _from_start_to_end(made, mask, k)
    elif rank in (2, 3):
        allowed = made.add("Cast", mask, to=DType.BOOL.value)
    else:
        raise CompositionError(f"its mask has {rank} axes")
    axes = made.integers(1) if rank == 3 else made.integers(1, 2)
    filter_value = float(made.node.attributes.get("mask_filter_value", -10000.0))
    return [as_addition(made, made.add("Unsqueeze", allowed, axes), k, filter_value)]


def _from_start_to_end(made: Composition, mask: Value, k: Value) -> Value:
    """Say of each key if it is before its sequence's end and not before its start: (B, T)."""
    batch, count = made.shape(made.given(0))[0], made.shape(mask)[0]
    if not isinstance(batch, int) or count not in (batch, 2 * batch):
        raise CompositionError("its mask is a list of something else than ends, and starts")
    total = made.add("Squeeze", made.add("Shape", k, start=2, end=3))
    steps = made.add("Range", made.scalar(0), total, made.scalar(1))
    places = made.add("Unsqueeze", made.add("Cast", mask, to=DType.INT64.value), made.integers(1))
    if count == batch:
        return made.add("Less", steps, places)
    ends, starts = made.add_many("Split", 2, places, made.integers(batch, batch), axis=0)
    is_behind = made.add("GreaterOrEqual", steps, starts)
    return made.add("And", is_behind, made.add("Less", steps, ends))
