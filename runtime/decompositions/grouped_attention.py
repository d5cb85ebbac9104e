"""Attention where heads of queries share those of keys; the letters are those of ``attention``."""

from __future__ import annotations

import numpy as np

from ..graph import DType, Value
from .attention import rotated
from .composition import Composition, CompositionError
from .heads import (
    as_addition,
    by_heads,
    count_of,
    keys_turned,
    length_of,
    lowest,
    merged,
    refuse_attributes,
    refuse_inputs,
    scale_of,
)
from .registry import decomposition

__all__: list[str] = []


@decomposition("GroupQueryAttention")
def group_query_attention(made: Composition) -> list[Value | None]:
    """Q, K, V, past keys, values, last places of keys, T, cosines, sines, positions, bias, sinks.

    Keys and values are written behind those of the past, at each sequence's own place, in memory of
    T places or as many as the past has.
    """
    refuse_attributes(made, "sliding_window_cache", "kv_cache_bit_width", "qk_output")
    if int(made.node.attributes.get("causal", 1)) != 1:
        raise CompositionError("it is not causal")
    refuse_inputs(made, 12)
    count, kv_count = count_of(made, "num_heads"), count_of(made, "kv_num_heads")
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
    return [merged(made, result, count * size), keys, values]


def _grouped(made: Composition, count: int, kv_count: int) -> tuple[Value, Value, Value, int]:
    """Return queries, keys and values by heads, and the size of a head."""
    query, key, value = made.given(0), made.optional(1), made.optional(2)
    width = length_of(made, query, 2)
    if count % kv_count:
        raise CompositionError(f"{count} heads of queries share {kv_count} of keys")
    if key is None or value is None:
        size = width // (count + 2 * kv_count)
        sizes = made.integers(count * size, kv_count * size, kv_count * size)
        query, key, value = made.add_many("Split", 3, query, sizes, axis=-1)
    else:
        size = width // count
    q = by_heads(made, query, count, size)
    return q, by_heads(made, key, kv_count, size), by_heads(made, value, kv_count, size), size


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
    return as_addition(made, allowed, keys, lowest(made, keys))


def _attended_in_groups(
    made: Composition,
    operands: tuple[Value, Value, Value],
    sizes: tuple[int, int, int],
    added: list[Value],
) -> Value:
    """Attend where several heads of queries share one of keys: their rows are put together."""
    q, k, v = operands
    count, kv_count, size = sizes
    scale = made.number(scale_of(made, size), q)
    softcap = float(made.node.attributes.get("softcap", 0.0))
    if count != kv_count:
        q = made.add("Reshape", q, made.integers(0, kv_count, -1, size))
    scores = made.add("Mul", made.add("MatMul", q, keys_turned(made, k)), scale)
    if count != kv_count:
        shape = _shape_of_scores(made, operands[0], k)
        scores = made.add("Reshape", scores, shape)
    if softcap:
        cap = made.number(softcap, scores)
        scores = made.add("Mul", made.add("Tanh", made.add("Div", scores, cap)), cap)
    for item in added:
        scores = made.add("Add", scores, item)
    shares = _shares(made, scores, count)
    if count == kv_count:
        return made.add("MatMul", shares, v)
    lengths = made.add("Shape", k, start=2, end=3)
    head = made.integers(0, kv_count, -1)
    shares = made.add("Reshape", shares, made.add("Concat", head, lengths, axis=0))
    result = made.add("MatMul", shares, v)
    rows = made.add("Shape", operands[0], start=2, end=3)
    parts = (made.integers(0, count), rows, made.integers(size))
    return made.add("Reshape", result, made.add("Concat", *parts, axis=0))


def _shares(made: Composition, scores: Value, count: int) -> Value:
    """Return the softmax, perhaps with a further key that takes a share and has no value.

    Its score is the head's sink, or 0 where the softmax is to be smooth.
    """
    sinks = made.optional(11)
    is_smooth = int(made.node.attributes.get("smooth_softmax", 0)) == 1
    if sinks is None and not is_smooth:
        return made.add("Softmax", scores, axis=-1)
    if sinks is None:
        wide = made.add("Pad", scores, made.integers(0, 0, 0, 0, 0, 0, 0, 1))
    else:
        column = made.add("Reshape", sinks, made.integers(1, count, 1, 1))
        batch = made.add("Shape", scores, start=0, end=1)
        rows = made.add("Shape", scores, start=2, end=3)
        parts = (batch, made.integers(count), rows, made.integers(1))
        column = made.add("Expand", column, made.add("Concat", *parts, axis=0))
        wide = made.add("Concat", scores, column, axis=-1)
    shares = made.add("Softmax", wide, axis=-1)
    ends = made.integers(0), made.integers(-1), made.integers(-1)
    return made.add("Slice", shares, *ends)


def _shape_of_scores(made: Composition, q: Value, k: Value) -> Value:
    rows = made.add("Shape", q, start=0, end=3)
    return made.add("Concat", rows, made.add("Shape", k, start=2, end=3), axis=0)
