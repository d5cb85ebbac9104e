"""onnxruntime's attention operators, as the matmuls and the softmax that they are made of.

Letters: B sequences, N and M heads of queries and of keys, S new queries, P past keys, T = P + S,
H the size of a head. Values of heads are (B, N, S, H).
"""

from __future__ import annotations

import math

import numpy as np

from ..graph import DType, Value
from .composition import Composition, CompositionError
from .registry import decomposition

__all__ = ["attended", "rotated"]


@decomposition("Attention")
def attention(made: Composition) -> list[Value | None]:
    """x, weights of Q, K and V side by side, their bias; mask, past, what is added to scores."""
    _refuse_attributes(made, "do_rotary", "past_present_share_buffer")
    _refuse_inputs(made, 6)
    given, count = made.node.attributes, _heads(made, "num_heads")
    width = _length(made, made.given(1), -1)
    sizes = [int(size) for size in given.get("qkv_hidden_sizes") or [width // 3] * 3]
    if sum(sizes) != width or len(sizes) != 3:
        raise CompositionError(f"its weights have {width} columns for {sizes}")
    joined = made.add("MatMul", made.given(0), made.given(1))
    bias = made.optional(2)
    if bias is not None:
        joined = made.add("Add", joined, bias)
    parts = made.add_many("Split", 3, joined, made.integers(*sizes), axis=-1)
    q, k, v = (
        _by_heads(made, part, count, size // count) for part, size in zip(parts, sizes, strict=True)
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
    result = attended(made, q, k, v, _scale(made, sizes[0] // count), added)
    return [_merged(made, result, sizes[2]), present]


@decomposition("MultiHeadAttention")
def multi_head_attention(made: Composition) -> list[Value | None]:
    """Q, K, V, their bias, mask of keys, what is added to scores, past keys and values."""
    _refuse_inputs(made, 8)
    count = _heads(made, "num_heads")
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
    result = attended(made, q, k, v, _scale(made, sizes[0] // count), added)
    return [_merged(made, result, sizes[1]), _own(made, k), _own(made, v)]


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
    width = _length(made, query, 2)
    if made.rank(key) == 4:
        if bias is not None:
            query = made.add("Add", query, _part(made, bias, 0, width))
        size = _length(made, value, 3)
        return _by_heads(made, query, count, width // count), key, value, (width, size * count)
    value_width = _length(made, value, 2)
    if bias is not None:
        query = made.add("Add", query, _part(made, bias, 0, width))
        key = made.add("Add", key, _part(made, bias, width, 2 * width))
        value = made.add("Add", value, _part(made, bias, 2 * width, 2 * width + value_width))
    q, k = (_by_heads(made, item, count, width // count) for item in (query, key))
    v = _by_heads(made, value, count, value_width // count)
    return q, k, v, (width, value_width)


@decomposition("GroupQueryAttention")
def group_query_attention(made: Composition) -> list[Value | None]:
    """Q, K, V, past keys and values, last places of keys, T, cosines and sines, positions, bias.

    Keys and values are written behind those of the past, at each sequence's own place, in memory of
    T places or as many as the past has.
    """
    _refuse_attributes(made, "smooth_softmax", "sliding_window_cache", "kv_cache_bit_width")
    _refuse_attributes(made, "qk_output")
    if int(made.node.attributes.get("causal", 1)) != 1:
        raise CompositionError("it is not causal")
    _refuse_inputs(made, 11)
    count, kv_count = _heads(made, "num_heads"), _heads(made, "kv_num_heads")
    q, k, v, size = _grouped(made, count, kv_count)
    length = made.add("Shape", q, start=2, end=3)
    behind = _behind(made, length)
    if int(made.node.attributes.get("do_rotary", 0)):
        places = made.optional(9)
        places = _places(made, behind, length) if places is None else places
        is_interleaved = bool(made.node.attributes.get("rotary_interleaved", 0))
        tables = made.given(7), made.given(8)
        q, k = (rotated(made, item, size, places, tables, is_interleaved) for item in (q, k))
    keys, values = (
        _written(made, made.optional(index), item, behind, kv_count, size)
        for index, item in ((3, k), (4, v))
    )
    mask = _grouped_mask(made, keys, behind, length)
    added = [mask, *([] if made.optional(10) is None else [made.given(10)])]
    result = _attended_in_groups(made, (q, keys, values), (count, kv_count, size), added)
    return [_merged(made, result, count * size), keys, values]


def _grouped(made: Composition, count: int, kv_count: int) -> tuple[Value, Value, Value, int]:
    """Return queries, keys and values by heads, and the size of a head."""
    query, key, value = made.given(0), made.optional(1), made.optional(2)
    width = _length(made, query, 2)
    if count % kv_count:
        raise CompositionError(f"{count} heads of queries share {kv_count} of keys")
    if key is None or value is None:
        size = width // (count + 2 * kv_count)
        sizes = made.integers(count * size, kv_count * size, kv_count * size)
        query, key, value = made.add_many("Split", 3, query, sizes, axis=-1)
    else:
        size = width // count
    q = _by_heads(made, query, count, size)
    return q, _by_heads(made, key, kv_count, size), _by_heads(made, value, kv_count, size), size


def _behind(made: Composition, length: Value) -> Value:
    """Return (B,): how many keys each sequence had before; none where its first ones are padded."""
    last = made.add("Cast", made.given(5), to=DType.INT64.value)
    flat = made.add("Reshape", last, made.integers(-1))
    before = made.add("Sub", made.add("Add", flat, made.integers(1)), length)
    return made.add("Max", before, made.integers(0))


def _places(made: Composition, behind: Value, length: Value) -> Value:
    """Return (B, S): the place of each new key in its sequence."""
    steps = made.add("Range", made.scalar(0), made.add("Squeeze", length), made.scalar(1))
    return made.add("Add", made.add("Unsqueeze", behind, made.integers(1)), steps)


def _written(
    made: Composition, past: Value | None, now: Value, behind: Value, heads: int, size: int
) -> Value:
    """Write new keys or values behind the past, in memory that has room for all."""
    whole = made.add("Reshape", made.given(6), made.integers(1))
    whole = made.add("Cast", whole, to=DType.INT64.value)
    if past is None:
        batch = made.add("Shape", now, start=0, end=1)
        shape = made.add("Concat", batch, made.integers(heads), whole, made.integers(size), axis=0)
        empty = np.zeros(1, made.dtype(now).numpy)
        memory = made.add("ConstantOfShape", shape, value=empty)
    else:
        there = made.add("Shape", past, start=2, end=3)
        missing = made.add("Max", made.add("Sub", whole, there), made.integers(0))
        pads = made.add(
            "Concat", made.integers(0, 0, 0, 0, 0, 0), missing, made.integers(0), axis=0
        )
        memory = made.add("Pad", past, pads)
    return made.add("TensorScatter", memory, now, behind, axis=2)


def _grouped_mask(made: Composition, keys: Value, behind: Value, length: Value) -> Value:
    """Exclude later keys of each sequence, and those before its window."""
    places = made.add("Unsqueeze", _places(made, behind, length), made.integers(1, 3))
    total = made.add("Squeeze", made.add("Shape", keys, start=2, end=3))
    steps = made.add("Range", made.scalar(0), total, made.scalar(1))
    allowed = made.add("LessOrEqual", steps, places)
    window = int(made.node.attributes.get("local_window_size", -1))
    if window > 0:
        first = made.add("Sub", places, made.integers(window))
        allowed = made.add("And", allowed, made.add("Greater", steps, first))
    return _as_addition(made, allowed, keys, _lowest(made, keys))


def _attended_in_groups(
    made: Composition,
    operands: tuple[Value, Value, Value],
    sizes: tuple[int, int, int],
    added: list[Value],
) -> Value:
    """Attend where several heads of queries share one of keys: their rows are put together."""
    q, k, v = operands
    count, kv_count, size = sizes
    scale = made.number(_scale(made, size), q)
    softcap = float(made.node.attributes.get("softcap", 0.0))
    if count != kv_count:
        q = made.add("Reshape", q, made.integers(0, kv_count, -1, size))
    scores = made.add("Mul", made.add("MatMul", q, _turned(made, k)), scale)
    if count != kv_count:
        shape = _shape_of_scores(made, operands[0], k)
        scores = made.add("Reshape", scores, shape)
    if softcap:
        cap = made.number(softcap, scores)
        scores = made.add("Mul", made.add("Tanh", made.add("Div", scores, cap)), cap)
    for item in added:
        scores = made.add("Add", scores, item)
    shares = made.add("Softmax", scores, axis=-1)
    if count == kv_count:
        return made.add("MatMul", shares, v)
    lengths = made.add("Shape", k, start=2, end=3)
    head = made.integers(0, kv_count, -1)
    shares = made.add("Reshape", shares, made.add("Concat", head, lengths, axis=0))
    result = made.add("MatMul", shares, v)
    rows = made.add("Shape", operands[0], start=2, end=3)
    parts = (made.integers(0, count), rows, made.integers(size))
    return made.add("Reshape", result, made.add("Concat", *parts, axis=0))


def _shape_of_scores(made: Composition, q: Value, k: Value) -> Value:
    rows = made.add("Shape", q, start=0, end=3)
    return made.add("Concat", rows, made.add("Shape", k, start=2, end=3), axis=0)


@decomposition("RotaryEmbedding")
def rotary_embedding(made: Composition) -> list[Value]:
    """X by rows or by heads, positions or the first one, cosines, sines."""
    _refuse_attributes(made, "is_packed_batching")
    given = made.node.attributes
    x, places, cosines, sines = (made.given(index) for index in range(4))
    if float(given.get("scale", 1.0)) != 1.0:
        raise CompositionError("it has a scale")
    part, is_rows = int(given.get("rotary_embedding_dim", 0)), made.rank(x) == 3
    width = _length(made, x, -1)
    if is_rows:
        count = int(given.get("num_heads", 0)) if part else width // (2 * _length(made, cosines, 1))
        if count < 1 or width % count:
            raise CompositionError(f"rows of {width} are no {count} heads")
        heads = _by_heads(made, x, count, width // count)
    else:
        heads = x
    if made.rank(places) == 1:
        length = made.add("Squeeze", made.add("Shape", heads, start=2, end=3))
        steps = made.add("Range", made.scalar(0), length, made.scalar(1))
        places = made.add("Unsqueeze", made.add("Add", steps, places), made.integers(0))
    size = width // count if is_rows else width
    is_interleaved = bool(given.get("interleaved", 0))
    turned = rotated(made, heads, size, places, (cosines, sines), is_interleaved)
    return [_merged(made, turned, width) if is_rows else turned]


def rotated(
    made: Composition,
    x: Value,
    size: int,
    places: Value,
    tables: tuple[Value, Value],
    is_interleaved: bool,
) -> Value:
    """Turn pairs of the first elements of each head by the angle of its place, (B, S)."""
    half = _length(made, tables[0], 1)
    if 2 * half > size:
        raise CompositionError(f"angles of {2 * half} elements are more than a head of {size} has")
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


def attended(
    made: Composition, q: Value, k: Value, v: Value, scale: float, added: list[Value]
) -> Value:
    """Return softmax(q k^T scale + what is added) v, by heads."""
    scores = made.add("Mul", made.add("MatMul", q, _turned(made, k)), made.number(scale, q))
    for item in added:
        scores = made.add("Add", scores, item)
    return made.add("MatMul", made.add("Softmax", scores, axis=-1), v)


def _turned(made: Composition, k: Value) -> Value:
    return made.add("Transpose", k, perm=[0, 1, 3, 2])


def _by_heads(made: Composition, x: Value, count: int, size: int) -> Value:
    split = made.add("Reshape", x, made.integers(0, 0, count, size))
    return made.add("Transpose", split, perm=[0, 2, 1, 3])


def _merged(made: Composition, x: Value, width: int) -> Value:
    rows = made.add("Transpose", x, perm=[0, 2, 1, 3])
    return made.add("Reshape", rows, made.integers(0, 0, width))


def _part(made: Composition, bias: Value, start: int, end: int) -> Value:
    return made.add("Slice", bias, made.integers(start), made.integers(end), made.integers(0))


def _scale(made: Composition, size: int) -> float:
    return float(made.node.attributes.get("scale", 0.0)) or 1 / math.sqrt(size)


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
    return [_as_addition(made, allowed, q, _lowest(made, q))]


def _padding(made: Composition, mask: Value | None, k: Value) -> list[Value]:
    """Make an addition of a mask of keys: (B, T), (B, S, T), or how many of each sequence."""
    if mask is None:
        return []
    rank = made.rank(mask)
    if rank == 1:
        batch, count = made.shape(made.given(0))[0], made.shape(mask)[0]
        if batch is None or count != batch:
            raise CompositionError("its mask is a list of something else than lengths")
        total = made.add("Squeeze", made.add("Shape", k, start=2, end=3))
        steps = made.add("Range", made.scalar(0), total, made.scalar(1))
        ends = made.add("Cast", mask, to=DType.INT64.value)
        allowed = made.add("Less", steps, made.add("Unsqueeze", ends, made.integers(1)))
    elif rank in (2, 3):
        allowed = made.add("Cast", mask, to=DType.BOOL.value)
    else:
        raise CompositionError(f"its mask has {rank} axes")
    axes = made.integers(1) if rank == 3 else made.integers(1, 2)
    filter_value = float(made.node.attributes.get("mask_filter_value", -10000.0))
    return [_as_addition(made, made.add("Unsqueeze", allowed, axes), k, filter_value)]


def _as_addition(made: Composition, allowed: Value, like: Value, excluded: float) -> Value:
    return made.add("Where", allowed, made.number(0.0, like), made.number(excluded, like))


def _lowest(made: Composition, like: Value) -> float:
    if made.dtype(like) is DType.FLOAT16:
        return float(np.finfo(np.float16).min)
    return float(np.finfo(np.float32).min)


def _heads(made: Composition, name: str) -> int:
    count = int(made.node.attributes.get(name, 0))
    if count < 1:
        raise CompositionError(f"its {name} is {count}")
    return count


def _length(made: Composition, value: Value, axis: int) -> int:
    """Return a length that has to be known."""
    found = made.shape(value)[axis]
    if not isinstance(found, int):
        raise CompositionError(f"length {axis} of {value.name!r} is not known")
    return found


def _refuse_attributes(made: Composition, *names: str) -> None:
    for name in names:
        if made.node.attributes.get(name, 0):
            raise CompositionError(f"it has {name}")


def _refuse_inputs(made: Composition, first: int) -> None:
    for index in range(first, len(made.inputs)):
        if made.optional(index) is not None:
            raise CompositionError(f"input {index} is given")
