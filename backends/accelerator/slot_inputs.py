"""A run's inputs on their way to the device: from the host's arrays, and from arrays there.

A run of fewer rows than its plan has is padded on the host. An output that a network of the device
has kept is read where it is, unless the run replays a launch graph or is padded.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from ...runtime.plans.batch_buckets import BatchBuckets, Padding
from ...runtime.tensors.tensor import Port
from .memory.bound_plan import BoundInput, BoundPlan
from .memory.host_arrays import Copy, staging_copies
from .memory.lent_memory import LentMemory
from .memory.weight_store import bytes_of
from .operand import Buffer
from .queues.driver import AdoptedArray, Memory
from .queues.queue_stream import QueueStream

__all__ = ["InputNetwork", "SlotInputs"]


class InputNetwork(Protocol):
    """What the inputs of a slot ask of its network."""

    model_inputs: tuple[Port, ...]
    lent: LentMemory
    buckets: BatchBuckets | None


class SlotInputs:
    """Has the inputs of one network's runs copied. It keeps nothing of a run, so is thread-safe.

    ``given`` are a run's inputs by name, ``places`` those of its plan in its slot.
    """

    def __init__(self, network: InputNetwork) -> None:
        self._network = network

    def copies_to_stage(
        self,
        places: Sequence[BoundInput],
        given: Mapping[str, Any],
        padding: Padding | None,
        *,
        reads_in_place: bool,
    ) -> list[Copy]:
        """Return what is copied to staging memory: all but what the device reads where it is.

        ``reads_in_place``: whether memory that was lent is read itself. Raises TensorError.
        """
        copies = list[Copy]()
        reads_in_place = reads_in_place and self._network.lent.is_used
        for port, place in zip(self._network.model_inputs, places, strict=True):
            array = given[port.name]
            in_place = reads_in_place and self._is_read_in_place(array, place)
            if not (isinstance(array, AdoptedArray) or in_place):
                rows = None if padding is None else self._given_rows(port.name, padding)
                copies += staging_copies(port.name, array, place.staged.array, rows)
        return copies

    def write(
        self, stream: QueueStream, places: Sequence[BoundInput], given: Mapping[str, Any]
    ) -> None:
        """Enqueue the uploads of what the host has."""
        is_lent = self._network.lent.is_used
        for port, place in zip(self._network.model_inputs, places, strict=True):
            array, data = given[port.name], place.staged.data
            if not isinstance(array, AdoptedArray) and data.size:
                in_place = is_lent and self._is_read_in_place(array, place)
                stream.write(place.memory, bytes_of(array) if in_place else data)

    def read_there(self, bound: BoundPlan, given: Mapping[str, Any]) -> dict[Buffer, Memory]:
        """List the memory that kernels can read themselves, for the buffers of these inputs."""
        found: dict[Buffer, Memory] = {}
        for port, place in zip(self._network.model_inputs, bound.inputs, strict=True):
            array, operand = given[port.name], place.operand
            if (
                isinstance(array, AdoptedArray)
                and array.is_argument
                and array.room is None
                and array.size_bytes == operand.size_bytes
                and operand.buffer in bound.exchangeable
            ):
                found[operand.buffer] = array.memory
        return found

    def copy_on_device(
        self,
        stream: QueueStream,
        bound: BoundPlan,
        given: Mapping[str, Any],
        there: Collection[Buffer],
    ) -> None:
        """Enqueue copies of the device's arrays, each repeated until its rows fill the input.

        What the kernels read ``there`` is kept until they have.
        """
        for port, place in zip(self._network.model_inputs, bound.inputs, strict=True):
            array = given[port.name]
            if not isinstance(array, AdoptedArray):
                continue
            if place.operand.buffer in there:
                stream.keep(array)
                continue
            rows = _rows_of(array)
            size_bytes, whole_bytes = array.size_bytes, place.operand.size_bytes
            for offset_bytes in range(0, whole_bytes if size_bytes else 0, size_bytes or 1):
                for start, own_bytes, begin in rows:
                    target = offset_bytes + start
                    part_bytes = min(own_bytes, whole_bytes - target)
                    if part_bytes > 0:
                        stream.copy_from(array, place.memory, part_bytes, target, begin)

    def _is_read_in_place(self, given: Any, place: BoundInput) -> bool:
        """True for a whole input in memory that was lent for it to be written to."""
        staged = place.staged.array
        return (
            self._network.lent.has(given)
            and given.shape == staged.shape
            and given.dtype == staged.dtype
        )

    def _given_rows(self, name: str, padding: Padding) -> int | None:
        """Return how many rows of an input are given; None: all that its plan has."""
        buckets = self._network.buckets
        return None if buckets is None or name not in buckets.inputs else padding.rows


def _rows_of(array: AdoptedArray) -> list[tuple[int, int, int]]:
    """List what lies together of an array: where it is in the array, its bytes, where in memory."""
    room, shape = array.room, array.shape
    if room is None or room == shape:
        return [(0, array.size_bytes, 0)]
    axis = next(index for index, length in enumerate(shape) if length != room[index])
    inner_bytes = math.prod(shape[axis + 1 :]) * array.dtype.itemsize
    own, step = shape[axis] * inner_bytes, room[axis] * inner_bytes
    return [(row * own, own, row * step) for row in range(math.prod(shape[:axis]))]
