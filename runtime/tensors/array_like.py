"""What callers give for a tensor, as a plain numpy array, and never as other numbers than given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..graph import DType

__all__ = ["as_array", "copied"]

_COMPLEX = frozenset({DType.COMPLEX64, DType.COMPLEX128})


def as_array(given: Any, dtype: DType | None) -> np.ndarray:
    """See an array of any kind as a plain one, without a copy; make one of numbers in lists.

    Arrays keep their own type, which is the caller's to check; text becomes an object array of str.
    Numbers and lists of them take ``dtype``; None leaves the choice to numpy. Raises ValueError,
    TypeError or what the object itself raises, if that cannot be done or would change a number.
    """
    if type(given) is np.ndarray:
        array = given
    elif isinstance(given, np.ndarray):
        array = _without_class(given)
    elif hasattr(given, "__array__") or hasattr(given, "__array_interface__"):
        array = _without_class(np.asanyarray(given))
    elif hasattr(given, "__dlpack__"):
        array = np.from_dlpack(given)
    else:
        array = _from_items(given, dtype)
    return array.astype(object) if array.dtype.kind in "UT" else array


def copied(inputs: Any) -> Any:
    """Copy the host's arrays of what is given as inputs: of a mapping, a sequence, or one."""
    if isinstance(inputs, Mapping):
        return {name: copied(given) for name, given in inputs.items()}
    if isinstance(inputs, list | tuple):
        return [copied(given) for given in inputs]
    return inputs.copy() if isinstance(inputs, np.ndarray) else inputs


def _without_class(array: np.ndarray) -> np.ndarray:
    """See a matrix, a memory map or the like as what it holds."""
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise ValueError("it is a masked array with masked items; give .filled(value)")
        return np.asarray(array.data)
    return np.asarray(array)


def _from_items(given: Any, dtype: DType | None) -> np.ndarray:
    natural = np.asarray(given)
    if dtype is None or (dtype is DType.STRING and natural.dtype.kind in "UO"):
        return natural
    if natural.size and natural.dtype.kind not in _kinds_for(dtype):
        raise ValueError(f"a {type(given).__name__} that numpy sees as {natural.dtype} was given")
    with np.errstate(over="raise"):
        array = np.asarray(given, dtype=dtype.numpy)
    is_rounded = dtype.is_floating or dtype in _COMPLEX
    if not is_rounded and not np.array_equal(array.astype(natural.dtype), natural):
        raise ValueError(f"a number is out of the range of {dtype.label}")
    return array


def _kinds_for(dtype: DType) -> str:
    """Return numpy's kinds of numbers that the type can hold, up to rounding."""
    if dtype is DType.BOOL:
        return "b"
    if dtype is DType.STRING:
        return ""
    if dtype in _COMPLEX:
        return "biufc"
    return "biuf" if dtype.is_floating else "biu"
