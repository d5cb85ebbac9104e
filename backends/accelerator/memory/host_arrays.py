"""The host memory that a run reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ....errors import TensorError
from ....runtime.graph import shape_text
from ..queues.driver import AdoptedArray

__all__ = [
    "check_bound_shape",
    "cost_bytes",
    "is_writable_in_place",
    "output_array",
    "parts_of",
    "refuse_on_device",
    "staging_copies",
]

_LINE_BYTES, _LINE_COUNT = 64, 16
"""Of the last dimension: the step, and the length, from which on elements are read one by one."""
_NEAR_COST_BYTES, _FAR_COST_BYTES = 6, 16
"""What an element costs whose neighbour lies in the same line of a cache, and any other."""

Array = np.ndarray[Any, Any]
Copy = tuple[Array, Array]
"""What is written, and what is read; one row may be read for all."""


def staging_copies(name: str, given: Any, staged: Array, rows: int | None = None) -> list[Copy]:
    """Return what is copied to have what the caller gave, in any order, where the device reads.

    ``rows``, at least 1: how many of the first dimension are given; the last one is repeated to
    fill the others, because it is sure to be an input that the network can take. Raises TensorError
    for an input that is not as its plan has it.
    """
    if not isinstance(given, np.ndarray):
        raise TensorError(
            f"input {name!r} is a {type(given).__name__}, and this device takes arrays "
            "only; give a numpy array",
            tensor=name,
        )
    target = staged if rows is None else staged[:rows]
    if given.shape != target.shape or given.dtype != target.dtype:
        raise TensorError(
            f"input {name!r} is {given.dtype}{shape_text(given.shape)}, and its plan is "
            f"for {target.dtype}{shape_text(target.shape)}",
            tensor=name,
            shape=given.shape,
            wanted_shape=target.shape,
            dtype=str(given.dtype),
            wanted_dtype=str(target.dtype),
        )
    if rows is None or rows == len(staged):
        return [(target, given)]
    return [(target, given), (staged[rows:], given[rows - 1 :])]


def cost_bytes(copy: Copy) -> int:
    """Return how many bytes side by side take about as long to copy. Pure.

    What is written is dense; or both are one array, which is copied from dense memory. Bytes that
    are seen transposed take up to 40 times as long.
    """
    target, source = copy
    if source.flags.c_contiguous:
        return target.nbytes
    is_near = abs(source.strides[-1]) < _LINE_BYTES and source.shape[-1] >= _LINE_COUNT
    element_bytes = _NEAR_COST_BYTES if is_near else _FAR_COST_BYTES
    return target.size * max(element_bytes, target.itemsize)


def parts_of(copies: Iterable[Copy], part_bytes: int) -> list[list[Copy]]:
    """Divide copies among threads: lists of copies of about the same number of bytes each. Pure."""
    parts: list[list[Copy]] = []
    left_bytes = 0
    for target, source in copies:
        for piece in _pieces(target, source, part_bytes):
            if not parts or left_bytes < piece[0].nbytes:
                parts.append([])
                left_bytes = part_bytes
            parts[-1].append(piece)
            left_bytes -= piece[0].nbytes
    return parts


def _pieces(target: Array, source: Array, part_bytes: int) -> Iterator[Copy]:
    """Cut a copy along the first dimension that can be cut, or anywhere if both are dense."""
    count = -(-target.nbytes // part_bytes)
    if source.shape == target.shape and source.flags.c_contiguous:
        target, source = target.reshape(-1), source.reshape(-1)
    if count < 2 or source.shape != target.shape or len(target) < 2:
        yield target, source
        return
    step = -(-len(target) // count)
    for start in range(0, len(target), step):
        yield target[start : start + step], source[start : start + step]


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
    check_bound_shape(name, bound.shape, shape)
    return bound if is_writable_in_place(bound) else empty(shape, dtype)


def refuse_on_device(name: str, given: Any) -> None:
    """Raise TensorError for an input that a plan depends on, and that the host cannot read."""
    if isinstance(given, AdoptedArray):
        raise TensorError(
            f"the content of input {name!r} decides what is computed, and it lies in a device's "
            f"memory; give a copy on the host, as .get() or .cpu() make"
        )


def check_bound_shape(name: str, bound: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Raise TensorError if memory of one shape is bound to an output of another."""
    if bound != shape:
        raise TensorError(
            f"output {name!r} is {shape_text(shape)} in this run, and the tensor bound to it is "
            f"{shape_text(bound)}; bind one that fits, or none",
            tensor=name,
            shape=tuple(bound),
            wanted_shape=tuple(shape),
        )


def is_writable_in_place(array: Array) -> bool:
    """True for memory that a device can write from the first byte to the last."""
    return bool(array.flags.c_contiguous and array.flags.writeable)
