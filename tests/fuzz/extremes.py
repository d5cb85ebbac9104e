"""Numbers, lists and arrays that are valid for their type and for nothing else."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

__all__ = [
    "FLOATS",
    "INTEGERS",
    "any_dtype",
    "extreme_array",
    "extreme_float",
    "extreme_integer",
    "extreme_list",
    "filled",
]

Array = np.ndarray[Any, Any]

INTEGERS = (
    *(0, -1, 1, 2, 3, -2, -3, 5, 7, 9, -9, 16, 100, 255, 256, 1000, 65536),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**32 + 1, 2**40, 2**62),
    *(2**63 - 1, -(2**63), -(2**62)),
)
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-30, 1e10, -1e10, 2.0**31, 1e20, 3e38, -3e38),
    *(float("nan"), float("inf"), float("-inf")),
)
_DTYPES = (
    *("float32", "float32", "float16", "float64", "int64", "int32", "int8", "uint8", "bool"),
    *("uint16", "int16", "uint32", "uint64"),
)


def extreme_integer(rng: Random) -> int:
    """Draw an integer of 64 bits; small ones most often, since they get furthest."""
    return rng.randrange(-4, 12) if rng.random() < 0.4 else rng.choice(INTEGERS)


def extreme_float(rng: Random) -> float:
    return rng.choice(FLOATS)


def extreme_list(rng: Random, like: list[int]) -> list[int]:
    """Draw a list of integers that is unlike one in length or in content."""
    changed = list(like)
    way = rng.randrange(6)
    if way == 0 or not changed:
        return [extreme_integer(rng) for _ in range(rng.randrange(0, 7))]
    if way == 1:
        return changed[: rng.randrange(len(changed))]
    if way == 2:
        return changed + [rng.choice(changed) for _ in range(rng.choice((1, 2, len(changed))))]
    if way == 3:
        return [rng.choice(changed)] * rng.choice((len(changed), 64, 1000))
    for place in rng.sample(range(len(changed)), rng.randrange(1, len(changed) + 1)):
        changed[place] = extreme_integer(rng)
    return changed


def extreme_array(rng: Random, array: Array) -> Array:
    """Copy an array and put extreme values at a few places, or everywhere."""
    changed = np.array(array)
    if not changed.size or changed.dtype.hasobject:
        return changed
    flat = changed.reshape(-1)
    count = rng.choice((1, 1, 2, flat.size))
    for place in rng.sample(range(flat.size), min(count, flat.size, 50)):
        _put(flat, place, rng)
    return changed


def _put(flat: Array, place: int, rng: Random) -> None:
    kind = flat.dtype.kind
    with np.errstate(all="ignore"):
        if kind in "iu":
            limits = np.iinfo(flat.dtype)
            flat[place] = min(max(extreme_integer(rng), int(limits.min)), int(limits.max))
        elif kind == "b":
            flat[place] = rng.random() < 0.5
        else:
            flat[place] = np.asarray(extreme_float(rng)).astype(flat.dtype)


def filled(rng: Random, shape: tuple[int, ...], like: Array) -> Array:
    """Make an array of a shape with the content of another one, over and over."""
    count = int(np.prod(shape, dtype=np.int64))
    if not like.size:
        return np.zeros(shape, like.dtype)
    return np.resize(like.reshape(-1), count).reshape(shape)


def any_dtype(rng: Random) -> np.dtype[Any]:
    return np.dtype(rng.choice(_DTYPES))
