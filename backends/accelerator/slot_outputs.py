"""A run's outputs on their way from the device: to memory that the caller has bound, or new arrays.

Those that OUTPUT_LOCATION keeps on the device are written to blocks of their own: by the kernels
themselves, or by a copy where a launch graph is replayed, or the memory is another tensor's, too.
Where a driver may wait in a copy to memory that it has not allocated itself, they come to staging
memory first, and ``deliver`` copies them on. Of a padded run only its own rows are taken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...executors import NOW, HostReady, Lane, Ready, StreamsExecutor
from ...runtime.plans.batch_buckets import BatchBuckets, Padding
from ...runtime.runs.bindings import Bindings
from ...runtime.runs.run_admission import RunAdmission
from ...runtime.tensors.output_pool import OutputPool
from ...runtime.tensors.tensor import Port
from .memory.bound_plan import BoundOutput, BoundPlan
from .memory.host_arrays import check_bound_shape, output_array
from .memory.kept_blocks import KeptBlock, KeptBlocks
from .memory.kept_output import KeptOutput
from .memory.weight_store import bytes_of
from .operand import Buffer
from .queues.driver import AdoptedArray, Memory
from .queues.opened_device import OpenedDevice
from .queues.queue_stream import QueueStream

__all__ = ["OutputNetwork", "SlotOutputs"]

Array = np.ndarray[Any, Any]


class OutputNetwork(Protocol):
    """What the outputs of a slot ask of its network."""

    model_outputs: tuple[Port, ...]
    copy_executor: StreamsExecutor
    buckets: BatchBuckets | None
    pool: OutputPool
    opened: OpenedDevice
    kept_outputs: frozenset[str]
    kept_blocks: KeptBlocks

    @property
    def admission(self) -> RunAdmission[Any]:
        """Whose recorder notes what is copied."""


class SlotOutputs:
    """Has the outputs of one network's runs delivered. It keeps nothing of a run: thread-safe.

    ``places`` are those of a run's plan in its slot; ``bindings.results`` get what is handed over.
    """

    def __init__(self, network: OutputNetwork) -> None:
        self._network = network

    def block_sizes(self, bound: BoundPlan, bindings: Bindings) -> dict[str, int]:
        """Return how much memory is needed for each output that stays, by name."""
        kept = self._network.kept_outputs
        return {
            port.name: place.operand.size_bytes
            for port, place in zip(self._network.model_outputs, bound.outputs, strict=True)
            if port.name in kept and port.name not in bindings.bound
        }

    def written_there(
        self, bound: BoundPlan, blocks: Mapping[str, KeptBlock]
    ) -> dict[Buffer, Memory]:
        """List the blocks that kernels can write themselves, for the buffers of these outputs."""
        return {
            place.operand.buffer: blocks[port.name].memory
            for port, place in zip(self._network.model_outputs, bound.outputs, strict=True)
            if port.name in blocks and place.operand.buffer in bound.exchangeable
        }

    def keep(
        self,
        stream: QueueStream,
        bound: BoundPlan,
        bindings: Bindings,
        padding: Padding | None,
        blocks: Mapping[str, KeptBlock],
        there: Collection[Buffer],
    ) -> None:
        """Hand over the outputs that stay, and enqueue copies of those not written ``there``."""
        recorder = self._network.admission.recorder
        growing = {growth.output: growth for growth in bound.plan.growing}
        ports = zip(self._network.model_outputs, bound.outputs, strict=True)
        for index, (port, place) in enumerate(ports):
            block = blocks.get(port.name)
            if block is None:
                continue
            operand = place.operand
            shape, room = self._own_shape(port.name, operand.shape, padding), None
            if index in growing:
                shape, room = growing[index].shape, growing[index].room
            noted = bindings.later_download(recorder, "compute")
            made = KeptOutput(self._network.opened, block, shape, operand.dtype.numpy, noted, room)
            stream.keep(block)
            if operand.buffer not in there and made.size_bytes:
                stream.copy_to(made.adopted(), place.memory)
            bindings.results[port.name] = made

    def read_to_staging(
        self,
        stream: QueueStream,
        places: Sequence[BoundOutput],
        bindings: Bindings,
        padding: Padding | None,
    ) -> None:
        """Enqueue what ``deliver`` finds, but for outputs that stay on the device. No host waits.

        Raises TensorError for memory of the device that does not fit.
        """
        for port, place in zip(self._network.model_outputs, places, strict=True):
            assert place.staged is not None
            if port.name in bindings.results:
                continue
            if port.name in bindings.bound and self._keep_on_device(
                stream, port.name, place, bindings, padding
            ):
                continue
            data = place.staged.data
            if padding is not None:
                own = self._own_part(port.name, place.staged.array, padding)
                data = data if own is place.staged.array else bytes_of(own)
            if data.size:
                stream.read(data, place.memory)

    def deliver(
        self, places: Sequence[BoundOutput], bindings: Bindings, padding: Padding | None
    ) -> int:
        """Copy from staging memory to memory that the caller has bound, or to new arrays.

        Returns how many bytes that were. Raises TensorError for memory that does not fit.
        """
        copied_bytes = 0
        for port, place in zip(self._network.model_outputs, places, strict=True):
            if port.name in bindings.results:
                continue
            assert place.staged is not None
            array = staged = place.staged.array
            if padding is not None:
                array = staged = self._own_part(port.name, staged, padding)
            if port.name not in bindings.bound:
                array = self._network.pool.empty(staged.shape, staged.dtype)
                np.copyto(array, staged)
                copied_bytes += array.nbytes
            copied_bytes += bindings.deliver(port.name, array)
        return copied_bytes

    def read_to_host(
        self,
        stream: QueueStream,
        places: Sequence[BoundOutput],
        bindings: Bindings,
        padding: Padding | None,
    ) -> Ready:
        """Have the device write results straight to where they belong, if it can.

        The token says when those are written that it cannot. Raises TensorError for memory that
        does not fit.
        """
        late: list[tuple[str, Array]] = []
        for port, place in zip(self._network.model_outputs, places, strict=True):
            if port.name in bindings.results or self._keep_on_device(
                stream, port.name, place, bindings, padding
            ):
                continue
            operand, given = place.operand, bindings.bound.get(port.name)
            form = self._own_shape(port.name, operand.shape, padding), operand.dtype.numpy
            array = output_array(port.name, given, *form, self._network.pool.empty)
            if array.nbytes:
                stream.read(bytes_of(array), place.memory)
            if given is None or given is array:
                bindings.results[port.name] = array
            else:
                late.append((port.name, array))
        return self._delivered_later(stream.record_event(), late, bindings) if late else NOW

    def _delivered_later(
        self, ready: Ready, late: list[tuple[str, Array]], bindings: Bindings
    ) -> Ready:
        """Copy to bound memory that the device cannot write, once the device is done."""
        ended = HostReady()

        def deliver(_lane: Lane) -> Ready:
            recorder = self._network.admission.recorder
            for name, array in late:
                size_bytes = bindings.deliver(name, array)
                bindings.note_copied(recorder, "download", "host", size_bytes)
            return NOW

        self._network.copy_executor.run(deliver, ready, lambda _ready, error: ended.fire(error))
        return ended

    def _keep_on_device(
        self,
        stream: QueueStream,
        name: str,
        place: BoundOutput,
        bindings: Bindings,
        padding: Padding | None,
    ) -> bool:
        """Copy an output to memory of the device that the caller has bound to it, if so."""
        given = bindings.bound.get(name)
        if not isinstance(given, AdoptedArray):
            return False
        check_bound_shape(name, given.shape, self._own_shape(name, place.operand.shape, padding))
        if given.size_bytes:
            stream.copy_to(given, place.memory)
        bindings.results[name] = given.given
        return True

    def _own_part(self, name: str, array: Array, padding: Padding) -> Array:
        """Take what the run's own rows make of an output, which comes before the padding's."""
        shape = self._own_shape(name, array.shape, padding)
        return array if shape == array.shape else array[: shape[0]]

    def _own_shape(
        self, name: str, shape: tuple[int, ...], padding: Padding | None
    ) -> tuple[int, ...]:
        buckets = self._network.buckets
        if padding is None or buckets is None or name not in buckets.outputs:
            return shape
        return padding.visible_shape(shape)
