"""Operators of maps, which onnx.reference gives other types than ONNX: dicts of Python numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..plain_operators import Array
from .own_operators import own

__all__ = ["keys_of", "map_to_tensor", "map_to_vector", "tensor_to_maps"]

_CAST_TYPES = {"TO_FLOAT": np.float32, "TO_STRING": object, "TO_INT64": np.int64}


@own("ZipMap", since=1, domain="ai.onnx.ml")
def tensor_to_maps(
    scores: Array,
    *,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (),
) -> list[dict[Any, float]]:
    """Return a dict from label to score for each row of (N, labels), or for the one of (labels,).

    Raises ValueError unless there is a label for each column.
    """
    keys = keys_of(classlabels_int64s, classlabels_strings)
    if scores.ndim not in (1, 2) or scores.shape[-1] != len(keys):
        raise ValueError(f"{len(keys)} labels are no columns of a tensor {scores.shape}")
    rows = scores.reshape(-1, len(keys)).tolist()
    return [dict(zip(keys, row, strict=True)) for row in rows]


@own("DictVectorizer", since=1, domain="ai.onnx.ml")
def map_to_vector(
    given: Mapping[Any, Any],
    *,
    int64_vocabulary: Sequence[int] = (),
    string_vocabulary: Sequence[str] = (),
) -> Array:
    """Return (1, words): what a dict holds for each word of a vocabulary, and 0 for the others.

    Raises ValueError for a key that is no word.
    """
    words = keys_of(int64_vocabulary, string_vocabulary)
    unknown = given.keys() - set(words)
    if unknown:
        raise ValueError(f"the vocabulary lacks {sorted(unknown)[:3]}")
    values = list(given.values())
    first = values[0] if values else 0.0
    if isinstance(first, str):
        found = np.array([[given.get(word, "") for word in words]], object)
    else:
        dtype = np.int64 if isinstance(first, int) else np.asarray(first).dtype
        wanted = np.float32 if dtype == np.float64 and isinstance(first, float) else dtype
        found = np.array([[given.get(word, 0) for word in words]], wanted)
    return found


@own("CastMap", since=1, domain="ai.onnx.ml")
def map_to_tensor(
    given: Mapping[int, Any],
    *,
    cast_to: str = "TO_FLOAT",
    map_form: str = "DENSE",
    max_map: int = 1,
) -> Array:
    """Return (1, items): a dict's values by ascending key; SPARSE: (1, max_map), at their keys.

    Raises ValueError for a form or type that ONNX does not have, and for a key beyond ``max_map``.
    """
    if cast_to not in _CAST_TYPES or map_form not in ("DENSE", "SPARSE"):
        raise ValueError(f"a map cannot be cast {cast_to} in the form {map_form}")
    if map_form == "DENSE":
        items = [given[key] for key in sorted(given)]
    else:
        wrong = [key for key in given if not 0 <= key < max_map]
        if wrong:
            raise ValueError(f"the keys {wrong[:3]} are not below max_map, {max_map}")
        missing = "" if cast_to == "TO_STRING" else 0
        items = [given.get(key, missing) for key in range(max_map)]
    if cast_to == "TO_STRING":
        return np.array([[str(item) for item in items]], object)
    return np.array([[float(item) for item in items]], np.float64).astype(_CAST_TYPES[cast_to])


def keys_of(integers: Sequence[int] = (), texts: Sequence[str] = ()) -> list[Any]:
    """Return the keys that a node is given; ValueError for two kinds of them."""
    if integers and texts:
        raise ValueError("keys are integers or strings, not both")
    if integers:
        return [int(key) for key in integers]
    return list(texts)
