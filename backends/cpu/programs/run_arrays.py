"""Which memory a run reads and writes: the caller's own wherever a native call can work on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import TensorError
from ..plans.plan import Form

__all__ = ["PLAIN_FLAGS", "as_buffer", "has_buffer", "input_array", "output_arrays"]

Array = np.ndarray[Any, Any]

_FIRST_FOREIGN_TYPE = 256  # numpy's NPY_USERDEF; dtype.isbuiltin says the same, ten times slower
PLAIN_FLAGS = 0x101
"""NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_ALIGNED: an array with both is read as it is."""


def input_array(name: str, array: Any) -> Array:
    """Return the caller's array as a plan reads it: C-contiguous; copied only if it is not."""
    if not isinstance(array, np.ndarray):
        raise TensorError(
            f"input {name!r} is a {type(array).__name__}, and CPU takes arrays only; "
            "give a numpy array",
            tensor=name,
        )
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def output_arrays(
    names: Sequence[str],
    forms: Sequence[Form],
    bound: Mapping[str, Array],
    inputs: Sequence[Array],
    empty: Callable[[tuple[int, ...], np.dtype[Any]], Array] = np.empty,
) -> list[Array]:
    """Choose where each output is written: to what the caller bound to it, or to a new array.

    Outputs are written while inputs are still read, so bound memory that overlaps another array of
    the run is left alone; what was made is copied there with the results.
    ``forms`` are the outputs' shapes and types; ``empty`` makes new arrays.
    """
    chosen: list[Array] = []
    for name, form in zip(names, forms, strict=True):
        memory = bound.get(name)
        if memory is None or not _fits(memory, form, (*inputs, *chosen)):
            memory = empty(*form)
        chosen.append(memory)
    return chosen


def _fits(memory: Array, form: Form, others: Sequence[Array]) -> bool:
    flags = memory.flags
    return (
        (memory.shape, memory.dtype) == form
        and bool(flags.c_contiguous and flags.aligned and flags.writeable)
        and not any(np.may_share_memory(memory, other) for other in others)
    )


def has_buffer(dtype: np.dtype[Any] | None) -> bool:
    """True for a type with the buffer protocol; bfloat16 and its like, and unknown ones, have not.

    None is an unknown type.
    """
    return dtype is not None and dtype.num < _FIRST_FOREIGN_TYPE


def as_buffer(array: Array) -> Array:
    """See an array in a type that has the buffer protocol."""
    dtype = array.dtype
    return array if dtype.num < _FIRST_FOREIGN_TYPE else array.view(f"V{dtype.itemsize}")
