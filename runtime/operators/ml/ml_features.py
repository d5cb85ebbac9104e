"""What ai.onnx.ml does with features before a model: categories, missing values, norms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..own.own_operators import own
from ..plain_operators import Array

__all__ = [
    "array_feature_extractor",
    "category_mapper",
    "feature_vectorizer",
    "fill_missing",
    "label_encoder",
    "normalize_rows",
    "one_hot_encoder",
    "scale_features",
]

_ML = "ai.onnx.ml"


class _Places:
    """Finds numbers or strings in a list; of equal ones the first counts. NaN equals NaN."""

    def __init__(self, keys: Array) -> None:
        self._count = len(keys)
        self._by_text: Mapping[str, int] | None = None
        if keys.dtype == object:
            self._by_text = {key: place for place, key in reversed([*enumerate(keys.tolist())])}
            return
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        self._nan = int(np.isnan(keys).argmax()) if self._has_nan(keys) else -1

    @staticmethod
    def _has_nan(keys: Array) -> bool:
        return keys.dtype.kind == "f" and bool(np.isnan(keys).any())

    def find(self, x: Array) -> Array:
        """Return the place of each element, or -1; raises TypeError for another kind of them."""
        if (x.dtype.kind in "OUS") != (self._by_text is not None):
            raise TypeError(f"elements of type {x.dtype} are looked for among others")
        if self._by_text is not None:
            known, missing = self._by_text, -1
            found = [known.get(item, missing) for item in x.reshape(-1).tolist()]
            return np.array(found, np.intp).reshape(x.shape)
        if not self._count:
            return np.full(x.shape, -1, np.intp)
        near = np.searchsorted(self._sorted, x).clip(max=self._count - 1)
        places = np.where(self._sorted[near] == x, self._order[near], -1)
        if self._nan >= 0:
            places[np.isnan(x)] = self._nan
        return np.asarray(places)


@own("OneHotEncoder", since=1, domain=_ML, prepares=True)
def one_hot_encoder(
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    zeros: int = 1,
) -> Callable[[Array], Array]:
    """Return what puts 1 at the place of each element's category, along a new last axis.

    It raises ValueError for an element without a category, unless ``zeros``. Numbers are cut to
    whole ones first.
    """
    keys: Array = np.array(list(cats_int64s), np.int64)
    if not len(keys):
        keys = np.array(list(cats_strings), object)
    places = _Places(keys)

    def encode(x: Array) -> Array:
        found = places.find(x if x.dtype == object else x.astype(np.int64))
        if not zeros and (found < 0).any():
            raise ValueError(f"{x[found < 0][0]!r} is none of {len(keys)} categories")
        made = np.zeros((*x.shape, len(keys)), np.float32)
        is_known = found >= 0
        made.reshape(-1, max(1, len(keys)))[np.flatnonzero(is_known), found[is_known]] = (
            1  # without categories none is known
        )
        return made

    return encode


@own(
    "LabelEncoder",
    since=2,
    domain=_ML,
    later={"default_tensor": 4, "keys_tensor": 4, "values_tensor": 4},
    prepares=True,
)
def label_encoder(
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Array | None = None,
    keys_floats: Sequence[float] = (),
    keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (),
    keys_tensor: Array | None = None,
    values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (),
    values_strings: Sequence[str] = (),
    values_tensor: Array | None = None,
    **first_version: Sequence[str],
) -> Callable[[Array], Array]:
    """Return what gives for each key its value, and the default for what is no key.

    The first version has ``classes_strings``, and gives strings their places and places their
    strings. Raises ValueError unless there are as many keys as values.
    """
    if first_version:
        texts = first_version["classes_strings"]
        return functools.partial(
            category_mapper,
            cats_int64s=range(len(texts)),
            cats_strings=texts,
            default_int64=default_int64,
            default_string=default_string,
        )
    keys = _listed(keys_floats, keys_int64s, keys_strings, keys_tensor)
    values = _listed(values_floats, values_int64s, values_strings, values_tensor)
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys are given for {len(values)} values")
    if values.dtype == object:
        missing: Any = default_string
    else:
        missing = default_float if values.dtype.kind == "f" else default_int64
    if default_tensor is not None:
        missing = np.asarray(default_tensor).reshape(-1)[0]
    places = _Places(keys)
    extended = np.concatenate([values, np.array([missing], values.dtype)])
    return lambda x: extended[places.find(x)]


@own("CategoryMapper", since=1, domain=_ML)
def category_mapper(
    x: Array,
    *,
    cats_int64s: Sequence[int],
    cats_strings: Sequence[str],
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Array:
    """Turn strings into the numbers that stand beside them, or numbers into strings."""
    numbers, texts = np.array(list(cats_int64s), np.int64), np.array(list(cats_strings), object)
    if len(numbers) != len(texts):
        raise ValueError(f"{len(numbers)} numbers are given for {len(texts)} strings")
    is_text = x.dtype.kind in "OUS"
    keys, values, default = (
        (texts, numbers, default_int64) if is_text else (numbers, texts, default_string)
    )
    extended = np.concatenate([values, np.array([default], values.dtype)])
    return np.asarray(extended[_Places(keys).find(x)])


@own("Imputer", since=1, domain=_ML)
def fill_missing(
    x: Array,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Array:
    """Put a value, one for all columns or one each, where the replaced one, or NaN, stands.

    Raises ValueError for another number of values.
    """
    is_float = x.dtype.kind == "f"
    given = imputed_value_floats if is_float else imputed_value_int64s
    old = replaced_value_float if is_float else replaced_value_int64
    values = np.array(list(given), x.dtype)
    if len(values) not in (1, x.shape[-1] if x.ndim else 1):
        raise ValueError(f"{len(values)} values are given for x of {x.shape}")
    is_old = np.isnan(x) if is_float and np.isnan(old) else x == x.dtype.type(old)
    return np.where(is_old, values, x)


@own("ArrayFeatureExtractor", since=1, domain=_ML)
def array_feature_extractor(x: Array, indices: Array) -> Array:
    """Take elements along the last axis; of a vector as a row.

    Raises IndexError for indices that are not there, also below 0.
    """
    places = indices.reshape(-1)
    if places.size and not 0 <= int(places.min()) <= int(places.max()) < x.shape[-1]:
        raise IndexError(f"{int(places.min())} to {int(places.max())} of {x.shape[-1]} elements")
    picked = x[..., places.astype(np.intp)]
    return np.asarray(picked if x.ndim > 1 else picked[None])


@own("FeatureVectorizer", since=1, domain=_ML)
def feature_vectorizer(*inputs: Array, inputdimensions: Sequence[int] = ()) -> Array:
    """Join rows of features, in float32, each cut to its dimension or filled up with zeros.

    Raises ValueError unless there is a dimension for each input.
    """
    if len(inputs) != len(inputdimensions) or any(x.ndim not in (1, 2) for x in inputs):
        raise ValueError(f"{len(inputdimensions)} dimensions are given for {len(inputs)} inputs")
    tables = [np.atleast_2d(x).astype(np.float32) for x in inputs]
    made = np.zeros((len(tables[0]), sum(inputdimensions)), np.float32)
    start = 0
    for table, width in zip(tables, inputdimensions, strict=True):
        made[:, start : start + min(width, table.shape[1])] = table[:, :width]
        start += width
    return made


@own("Normalizer", since=1, domain=_ML)
def normalize_rows(x: Array, *, norm: str = "MAX") -> Array:
    """Divide each row by its norm, in float32; a row whose norm is 0 stays.

    MAX divides by the greatest element, as onnxruntime does: NaN is none, and without another one
    it is the lowest finite number.
    """
    rows = x.astype(np.float32)
    if not rows.size:
        return rows
    if norm == "MAX":
        lowest = np.finfo(np.float32).min
        total = np.fmax.reduce(rows, axis=-1, keepdims=True, initial=lowest)
    elif norm == "L1":
        total = np.abs(rows).sum(axis=-1, keepdims=True)
    elif norm == "L2":
        total = np.sqrt(np.square(rows).sum(axis=-1, keepdims=True))
    else:
        raise ValueError(f"there is no norm {norm!r}")
    return np.asarray(rows / np.where(total == 0, np.float32(1), total))


@own("Scaler", since=1, domain=_ML)
def scale_features(x: Array, *, offset: Sequence[float] = (), scale: Sequence[float] = ()) -> Array:
    """(x - offset) scale, in float32; of each there is one for all columns, or one each."""
    moved = x - np.array(list(offset or (0.0,)), np.float32)
    return np.asarray(moved * np.array(list(scale or (1.0,)), np.float32)).astype(np.float32)


def _listed(
    floats: Sequence[float], integers: Sequence[int], texts: Sequence[str], tensor: Array | None
) -> Array:
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    if floats:
        return np.array(list(floats), np.float32)
    if integers:
        return np.array(list(integers), np.int64)
    return np.array(list(texts), object)
