"""A device in use: its context, its queues, their completion threads, memory and built kernels.

All networks on a device share what is here. Uploads have a queue; launches have several, each with
one for its downloads, and there are events between them, so that what different runs do overlaps. A
network takes the compute queues that the fewest others have, so that none waits for a stranger as
long as there are enough. For the same reason each queue has a completion thread, started by the
first event that is waited for there: events of one queue fire in their order, those of several do
not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....errors import TensorError
from ....executors import (
    CompletionThread,
    DeviceEvent,
    DeviceStreamExecutor,
    ReadingHost,
    TaskExecutor,
)
from ....runtime.tensors.device_array import memory_place
from ....runtime.tensors.kept_array import KeptArray
from ..launching.kernel_programs import KernelPrograms
from ..memory.device_memory import DeviceMemory
from ..memory.kept_blocks import KeptBlock
from ..memory.kept_output import KeptOutput
from .device_health import DeviceHealth
from .driver import (
    AdoptedArray,
    Bytes,
    Context,
    DeviceFacts,
    DriverError,
    Event,
    HostMemory,
    LaunchGraph,
    Memory,
    Queue,
)
from .queue_stream import QueueEvent, QueueGroup, QueueStream
from .submission import failure_of

__all__ = ["ComputeStream", "OpenedDevice", "fewest_users"]

_MOST_STREAMS = 16
"""Compute queues of a device; beyond this number, networks share them."""


@dataclass(frozen=True)
class ComputeStream:
    """A queue for launches, and what goes with it."""

    number: int
    compute: DeviceStreamExecutor
    replay: TaskExecutor
    """For functions that read on the host, and then enqueue on the same queue."""
    download: DeviceStreamExecutor


def fewest_users(users: Sequence[int], count: int) -> list[int]:
    """Choose a number of queues, those with the fewest users and the lowest numbers. Pure."""
    by_users = sorted(range(len(users)), key=lambda number: (users[number], number))
    return sorted(by_users[:count])


class OpenedDevice:
    """One device, for all networks on it. Thread-safe."""

    def __init__(self, name: str, context: Context) -> None:
        self.name, self._context = name, context
        self.health = DeviceHealth(name)
        self.memory = DeviceMemory(name, context, self.health)
        self.programs = KernelPrograms(name, context)
        self.queues = QueueGroup(self, self.health)
        self._completions: list[CompletionThread] = []
        self._executors: list[DeviceStreamExecutor] = []
        self.upload = ReadingHost(self._executor("upload"))
        self._streams: dict[int, ComputeStream] = {}
        self._users = [0] * _MOST_STREAMS
        self._streams_lock = threading.Lock()
        self._setup_queue = context.queue(f"{name} setup")
        self._setup_lock = threading.Lock()
        self._capture_lock = threading.Lock()
        self._reads: Queue | None = None
        self._reads_lock = threading.Lock()

    @property
    def facts(self) -> DeviceFacts:
        """What the device says of itself."""
        return self._context.facts

    def take_streams(self, count: int) -> list[ComputeStream]:
        """Lend a network a number of compute queues, made when they are first asked for.

        Launches of different queues run side by side where the device has room.
        """
        with self._streams_lock:
            numbers = fewest_users(self._users, count)
            for number in numbers:
                if number not in self._streams:
                    self._streams[number] = self._compute_stream(number)
            for number in numbers:
                self._users[number] += 1
            return [self._streams[number] for number in numbers]

    def give_back(self, streams: Iterable[ComputeStream]) -> None:
        """Take queues back that were lent."""
        with self._streams_lock:
            for stream in streams:
                self._users[stream.number] -= 1

    def host_memory(self, size_bytes: int) -> HostMemory:
        """Make host memory that the device copies from at full speed. Blocks a little."""
        try:
            return self._context.host_memory(size_bytes)
        except DriverError as error:
            raise self.health.translate(error, "taking host memory for copies") from error

    def adopt(self, given: Any, what: str) -> AdoptedArray | None:
        """Take a caller's array in the device's memory as it is; see AdoptArray."""
        if isinstance(given, KeptOutput) and given.opened is self:
            return given.adopted()
        if isinstance(given, KeptArray):
            return None
        if not self.facts.can_adopt:
            raise TensorError(
                f"{what} lies in the memory of {memory_place(given)}, and {self.name} takes arrays "
                f"of the host, and what its own networks have kept; give a copy there, as .get() "
                f"or .cpu() make"
            )
        try:
            adopted = self._context.adopt(given)
        except DriverError as error:
            raise self.health.translate(error, f"taking {what} as it is") from error
        if adopted is None:
            raise TensorError(
                f"{what} lies in the memory of {memory_place(given)}, and {self.name} computes; "
                f"copy it there, or to the host"
            )
        return adopted

    def read_kept(self, target: Bytes, block: KeptBlock) -> None:
        """Copy what a block begins with to the host, and wait. One at a time; blocks.

        Raises DeviceError, and ClosedError once the device is closed.
        """
        doing = "downloading a tensor"
        with self._reads_lock:  # so that nothing is taken back meanwhile
            memory = block.memory
            try:
                if self._reads is None:
                    self._reads = self._context.queue(f"{self.name} reads")
                failures = _failures(self._reads.read(target, memory))
            except DriverError as error:
                raise self.health.translate(error, doing) from error
        if failures:
            raise self.health.translate(failures[0], doing) from failures[0]

    def export(self, array: AdoptedArray, options: Mapping[str, Any]) -> Any:
        """Make a DLPack capsule of memory that is complete; None where no library takes it.

        Raises BufferError.
        """
        try:
            return self._context.export(array, options)
        except DriverError as error:
            raise BufferError(f"{self.name} cannot export {array.dtype}: {error.text}") from error

    def capture(self, enqueue: Callable[[Queue], None]) -> LaunchGraph:
        """Capture launches, one such call at a time; see ``Context.capture``. Blocks a little."""
        with self._capture_lock:
            return self._context.capture(enqueue)

    def write_now(self, copies: Iterable[tuple[Memory, Bytes]]) -> None:
        """Copy to the device and wait; for weights, on a compile thread."""
        with self._setup_lock:
            failures: list[DriverError] = []
            events: list[Event] = []
            try:
                for pair in copies:
                    events.append(self._setup_queue.write(*pair))
            except DriverError as error:
                failures.append(error)
            for event in events:  # all of them: they use the memory until they are over
                failures += _failures(event)
        if failures:
            raise self.health.translate(failures[0], "uploading weights") from failures[0]

    def close(self) -> None:
        """End its threads; when no network is left on it. Blocks."""
        for executor in self._executors:
            executor.close()
        for completion in self._completions:
            completion.close()
        with self._reads_lock:
            self.memory.take_back_lent()
            self._reads = None
        self._context.close()

    def __repr__(self) -> str:
        state = "lost" if self.health.lost else f"{self.memory.taken_bytes} bytes taken"
        return f"<{type(self).__name__} {self.name!r} {state}>"

    def _compute_stream(self, number: int) -> ComputeStream:
        suffix = f" {number}" if number else ""
        compute = self._executor(f"compute{suffix}")
        download = self._executor(f"download{suffix}")
        return ComputeStream(number, compute, ReadingHost(compute), download)

    def _executor(self, queue: str) -> DeviceStreamExecutor:
        name = f"{self.name} {queue}"
        try:
            of_driver = self._context.queue(name)
        except DriverError as error:
            raise self.health.translate(error, f"making the queue {name!r}") from error
        completion = CompletionThread(f"{name} completion", _wait_for)
        self._completions.append(completion)
        stream = QueueStream(name, of_driver, self.queues, completion.watch)
        self._executors.append(DeviceStreamExecutor(stream))
        return self._executors[-1]


def _wait_for(event: DeviceEvent) -> None:
    assert isinstance(event, QueueEvent)
    event.wait()


def _failures(event: Event) -> list[DriverError]:
    """Wait for a command, and say what it failed with."""
    try:
        event.wait()
    except DriverError as error:
        return [failure_of(event) or error]
    return []
