"""Sequences of several lengths in one run: padded to a bucket on the way in, cut on the way out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import GraphError
from ...runtime.graph import shape_text
from .rows import join_rows, rows_of

__all__ = ["LengthAxes", "LengthPadding"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class LengthAxes:
    """Where the length of a sequence is: the axes of inputs and outputs, by name.

    What is in neither mapping does not have it. At least one input does.
    """

    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]


class LengthPadding:
    """Pads sequences up to the next of ascending ``buckets``, with a value for each input.

    One that is empty, or longer than the last bucket, is not padded. Immutable, so thread-safe.
    """

    def __init__(
        self, buckets: Sequence[int], axes: LengthAxes, values: Mapping[str, int | float | str]
    ) -> None:
        self.buckets, self.axes, self.values = tuple(buckets), axes, dict(values)
        self._places = [(name, axis) for name, found in axes.inputs.items() for axis in found]
        self._name, self._axis = self._places[0]

    def rows_of(self, inputs: Mapping[str, Any], batched: Sequence[str]) -> tuple[int, Hashable]:
        """Return how many rows a request has, and its key; as the function of this name.

        Requests of one bucket have equal keys. Inputs that contradict each other have to go alone.
        """
        count, key = rows_of(inputs, batched)
        if key is None:
            return count, None
        length = self.length_of(inputs)
        if any(inputs[name].shape[axis] != length for name, axis in self._places):
            return 1, None
        bucket = self.bucket_of(length)
        if bucket is None:
            return count, key
        arrays = [(name, inputs[name]) for name in batched]
        kinds = [(array.dtype, self._padded(name, array, bucket)) for name, array in arrays]
        return count, (bucket, *kinds)

    def length_of(self, inputs: Mapping[str, Any]) -> int:
        """Return the length of a request's sequences, whose key is not None."""
        return int(inputs[self._name].shape[self._axis])

    def bucket_of(self, length: int) -> int | None:
        """Return what sequences of this length are padded to; None: they are not."""
        place = bisect_left(self.buckets, length)
        return None if not length or place == len(self.buckets) else self.buckets[place]

    def join_rows(
        self,
        members: Sequence[Mapping[str, Any]],
        batched: Sequence[str],
        empty: Callable[[tuple[int, ...], np.dtype[Any]], Array],
    ) -> dict[str, Array]:
        """Write the rows of all members, each once, and what they are padded with.

        Their keys are equal. Arrays are made by ``empty``.
        """
        lengths = [self.length_of(inputs) for inputs in members]
        bucket = self.bucket_of(lengths[0])
        if bucket is None or min(lengths) == bucket:
            return join_rows(members, batched, empty)
        plain = [name for name in batched if name not in self.axes.inputs]
        joined = join_rows(members, plain, empty)
        for name, axes in self.axes.inputs.items():
            arrays, value, begin = [inputs[name] for inputs in members], self.values[name], 0
            shape = sum(map(len, arrays)), *self._padded(name, arrays[0], bucket)
            target = joined[name] = empty(shape, arrays[0].dtype)
            for array in arrays:
                end = begin + len(array)
                _write_padded(target[begin:end], array, axes, value)
                begin = end
        return joined

    def check(self, results: Mapping[str, Any], length: int) -> None:
        """Raise GraphError unless outputs are as long as the joined inputs that they are of.

        A length that is not padded is unknown here, and nothing will be cut.
        """
        if self.bucket_of(length) is None:
            return
        for name, axes in self.axes.outputs.items():
            value = results.get(name)
            if value is not None and any(value.shape[axis] != length for axis in axes):
                raise GraphError(
                    f"output {name!r} is {shape_text(value.shape)} for sequences padded to "
                    f"{length}, along axis {', '.join(map(str, axes))}"
                )

    def cut(self, outputs: dict[str, Any], length: int) -> None:
        """Cut one request's outputs back to its own length, in place: views."""
        if self.bucket_of(length) is None:
            return
        for name, axes in self.axes.outputs.items():
            value = outputs.get(name)
            if value is not None:
                places = [slice(None)] * value.ndim
                for axis in axes:
                    places[axis] = slice(length)
                outputs[name] = value[tuple(places)]

    def _padded(self, name: str, array: Array, bucket: int) -> tuple[int, ...]:
        """Return the shape of a row of an input once it is padded."""
        axes: Collection[int] = self.axes.inputs.get(name, ())
        return tuple(
            bucket if axis in axes else dim for axis, dim in enumerate(array.shape) if axis
        )


def _write_padded(target: Array, array: Array, axes: Sequence[int], value: Any) -> None:
    """Write an array to the front of a target, and a value behind it; each element once."""
    places = [slice(None)] * array.ndim
    for axis in axes:
        length = array.shape[axis]
        if length < target.shape[axis]:
            places[axis] = slice(length, None)
            target[tuple(places)] = value
        places[axis] = slice(length)
    target[tuple(places)] = array
