"""Samples of a model's inputs from files of arrays. Pure but for reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import TensorError
from ...runtime.graph import DType, TensorType
from ...runtime.tensors.tensor import Port, check_value
from ..arguments import OptionError
from ..input_files import ARRAY_SUFFIXES, find_files, read_arrays

__all__ = ["read_samples"]

Array = np.ndarray[Any, Any]

_FLOATING = frozenset(item.numpy for item in DType if item.is_floating)
_ROWS = 32
"""Rows of a sample whose first length is open: quantizers keep what a sample makes in memory."""


def read_samples(
    items: Sequence[str], ports: Sequence[Port], *, must_be_finite: bool = False
) -> list[dict[str, Array]]:
    """Read the samples that the items of --data name, each with an array for every input.

    An array is one sample, several with one axis more than the input has, or several batches one
    after another. Raises OptionError where inputs have none or not equally many, and TensorError
    for what does not fit; with ``must_be_finite`` also for NaN and infinities, which give no range.
    """
    files = find_files(items, ports, "--data")
    others = [
        path
        for paths in files.by_input.values()
        for path in paths
        if path.suffix.lower() not in ARRAY_SUFFIXES
    ]
    if others:
        raise OptionError(
            f"--data: {str(others[0])!r} holds no array; give .npy or .npz files of what the model "
            f"is given, after any preprocessing"
        )
    read = read_arrays(files, ports)
    if must_be_finite:
        for name, found in read.items():
            for path, array in found:
                _refuse_infinite(array, name, path)
    parts = {
        port.name: [
            part
            for path, array in read.get(port.name, ())
            for part in _parts(array, port, path, _is_one_batch(ports))
        ]
        for port in ports
    }
    counts = {name: len(found) for name, found in parts.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        raise OptionError(
            f"--data: every input needs as many samples, and there are "
            f"{', '.join(f'{count} of {name!r}' for name, count in counts.items()) or 'no inputs'}"
        )
    return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]


def _refuse_infinite(array: Array, name: str, path: Path) -> None:
    if array.dtype not in _FLOATING:
        return
    is_lost = ~np.isfinite(array)
    if not is_lost.any():
        return
    place = [int(index) for index in np.unravel_index(int(is_lost.argmax()), array.shape)]
    what = "NaN" if np.isnan(array[tuple(place)]) else "infinity"
    raise TensorError(
        f"--data: input {name!r} holds {what} in file {str(path)!r}, at {place}, and no range of "
        f"values can be measured with that ({int(is_lost.sum())} of {array.size} numbers are not "
        f"finite); leave such samples out",
        tensor=name,
    )


def _parts(array: Array, port: Port, path: Path, is_one_batch: bool) -> Iterator[Array]:
    for part in _cut(array, port, is_one_batch):
        fitting: Array = check_value(part, port, f"file {path.name!r}")
        yield fitting


def _cut(array: Array, port: Port, is_one_batch: bool) -> Iterator[Array]:
    shape = port.type.shape if isinstance(port.type, TensorType) else None
    if shape is not None and array.ndim == len(shape) + 1:
        yield from array
        return
    if not shape or array.ndim != len(shape):
        yield array
        return
    length, rows = shape[0], len(array)
    step = length if isinstance(length, int) else _ROWS if is_one_batch else rows
    if not step or (isinstance(length, int) and rows % step):
        yield array
        return
    for first in range(0, rows, step):
        yield array[first : first + step]


def _is_one_batch(ports: Sequence[Port]) -> bool:
    """True if all inputs begin with the same open length, so that rows may be told apart."""
    lengths = {
        port.type.shape[0]
        for port in ports
        if isinstance(port.type, TensorType) and port.type.shape
    }
    return len(lengths) == 1 and all(isinstance(port.type, TensorType) for port in ports)
