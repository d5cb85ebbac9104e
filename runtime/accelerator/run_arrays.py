"""The host memory that a run reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import TensorError
from ..graph import shape_text

__all__ = ["is_writable_in_place", "output_array", "stage_input"]

Array = np.ndarray[Any, Any]


def stage_input(name: str, given: Any, staged: Array) -> None:
    """Copy what the caller gave, in whatever memory order, to where the device reads it."""
    if not isinstance(given, np.ndarray):
        raise TensorError(
            f"input {name!r} is a {type(given).__name__}, and this device takes arrays "
            "only; give a numpy array"
        )
    np.copyto(staged, given, casting="no")


def output_array(
    name: str,
    bound: Array | None,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    empty: Callable[[tuple[int, ...], np.dtype[Any]], Array] = np.empty,
) -> Array:
    """Choose where the device writes an output: the caller's memory if it can, else a new array.

    ``empty`` makes new arrays. Raises TensorError if memory that the caller has bound does not fit
    the result.
    """
    if bound is None:
        return empty(shape, dtype)
    if bound.shape != shape:
        raise TensorError(
            f"output {name!r} is {shape_text(shape)} in this run, and the tensor bound to it is "
            f"{shape_text(bound.shape)}; bind one that fits, or none"
        )
    return bound if is_writable_in_place(bound) else empty(shape, dtype)


def is_writable_in_place(array: Array) -> bool:
    """True for memory that a device can write from the first byte to the last."""
    return bool(array.flags.c_contiguous and array.flags.writeable)
