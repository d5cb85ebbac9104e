"""Heads of attention: rows split into them and joined, and what excludes a key."""

from __future__ import annotations

import math

import numpy as np

from ..graph import DType, Value
from .composition import Composition, CompositionError

__all__ = [
    "as_addition",
    "by_heads",
    "count_of",
    "keys_turned",
    "length_of",
    "lowest",
    "merged",
    "part_of",
    "refuse_attributes",
    "refuse_inputs",
    "scale_of",
]


def count_of(made: Composition, name: str) -> int:
    """Return the number of heads that an attribute tells; CompositionError without one."""
    count = int(made.node.attributes.get(name, 0))
    if count < 1:
        raise CompositionError(f"its {name} is {count}")
    return count


def length_of(made: Composition, value: Value, axis: int) -> int:
    """Return a length that has to be known."""
    found = made.shape(value)[axis]
    if not isinstance(found, int):
        raise CompositionError(f"length {axis} of {value.name!r} is not known")
    return found


def scale_of(made: Composition, size: int) -> float:
    """Return by what scores are multiplied: an attribute, or by the size of a head."""
    return float(made.node.attributes.get("scale", 0.0)) or 1 / math.sqrt(size)


def by_heads(made: Composition, x: Value, count: int, size: int) -> Value:
    """Split rows (B, S, N * H) into heads (B, N, S, H)."""
    split = made.add("Reshape", x, made.integers(0, 0, count, size))
    return made.add("Transpose", split, perm=[0, 2, 1, 3])


def merged(made: Composition, x: Value, width: int) -> Value:
    """Join heads (B, N, S, H) to rows (B, S, width)."""
    rows = made.add("Transpose", x, perm=[0, 2, 1, 3])
    return made.add("Reshape", rows, made.integers(0, 0, width))


def keys_turned(made: Composition, k: Value) -> Value:
    """Give (B, N, H, T) of keys (B, N, T, H)."""
    return made.add("Transpose", k, perm=[0, 1, 3, 2])


def part_of(made: Composition, bias: Value, start: int, end: int) -> Value:
    """Cut a part out of a row."""
    return made.add("Slice", bias, made.integers(start), made.integers(end), made.integers(0))


def as_addition(made: Composition, allowed: Value, like: Value, excluded: float) -> Value:
    """Write what is allowed as what is added to scores: 0, or a number that excludes."""
    return made.add("Where", allowed, made.number(0.0, like), made.number(excluded, like))


def lowest(made: Composition, like: Value) -> float:
    """Return the least number of a value's type."""
    if made.dtype(like) is DType.FLOAT16:
        return float(np.finfo(np.float16).min)
    return float(np.finfo(np.float32).min)


def refuse_attributes(made: Composition, *names: str) -> None:
    """Raise CompositionError where one of these attributes is there, and not 0."""
    for name in names:
        if made.node.attributes.get(name, 0):
            raise CompositionError(f"it has {name}")


def refuse_inputs(made: Composition, first: int) -> None:
    """Raise CompositionError where an input from this one on is given."""
    for index in range(first, len(made.inputs)):
        if made.optional(index) is not None:
            raise CompositionError(f"input {index} is given")
