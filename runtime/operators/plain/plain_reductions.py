"""Plain operators that reduce axes to one element each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..lists import numbers_of
from ..plain_operators import Array, PlainFunction, plain

__all__: list[str] = []

_add: Callable[..., Any] = np.add.reduce  # whose stubs know no keepdims that is a variable
_multiply: Callable[..., Any] = np.multiply.reduce
_highest: Callable[..., Any] = np.maximum.reduce
_lowest: Callable[..., Any] = np.minimum.reduce

_Reduce = Callable[[Array, tuple[int, ...] | None, bool], Any]


def _reduction(reduce: _Reduce) -> PlainFunction:
    def reduction(
        x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Array:
        made = reduce(x, _axes(axes, noop_with_empty_axes != 0), keepdims != 0)
        array = np.asarray(made)
        return array if array.dtype == x.dtype else array.astype(x.dtype)

    return reduction


def _axes(axes: Array | None, is_noop_if_empty: bool) -> tuple[int, ...] | None:
    """List the axes to reduce; None: all of them."""
    if axes is not None and axes.size:
        return tuple(numbers_of(axes, may_be_one=True))
    return () if is_noop_if_empty else None


def _sum(x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return _add(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


def _mean(x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    """Average; 0 where there is nothing to average, as onnxruntime gives."""
    count = math.prod(x.shape if axes is None else (x.shape[axis] for axis in axes))
    if not count:
        return _sum(x, axes, keepdims)
    return np.mean(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


def _product(x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    return _multiply(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


def _maximum(x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    initial = {} if x.size else {"initial": _extremes(x.dtype)[0]}
    return _highest(x, axis=axes, keepdims=keepdims, **initial)


def _minimum(x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    initial = {} if x.size else {"initial": _extremes(x.dtype)[1]}
    return _lowest(x, axis=axes, keepdims=keepdims, **initial)


def _extremes(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the lowest and the highest value of a type."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return -np.inf, np.inf


plain("ReduceMax", since=18)(_reduction(_maximum))
plain("ReduceMean", since=18)(_reduction(_mean))
plain("ReduceMin", since=18)(_reduction(_minimum))
plain("ReduceProd", since=18)(_reduction(_product))
plain("ReduceSum", since=13)(_reduction(_sum))
