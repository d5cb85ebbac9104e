"""A device in use: its context, its queues, one completion thread, memory and built kernels.

Theory of operation. All networks on a device share what is here. Uploads and downloads have a queue
each, and launches one or several, with events between them, so that those of different runs
overlap. The one completion thread waits for nothing but the last event of a run, on the download
queue; errors of earlier commands reach that event through wait lists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from ....errors import TensorError
from ....executors import CompletionThread, DeviceEvent, DeviceStreamExecutor
from ....runtime.tensors.device_array import memory_place
from ..launching.kernel_programs import KernelPrograms
from ..memory.device_memory import DeviceMemory
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

__all__ = ["OpenedDevice"]


class OpenedDevice:
    """One device, for all networks on it. Thread-safe."""

    def __init__(self, name: str, context: Context) -> None:
        self.name, self._context = name, context
        self.health = DeviceHealth(name)
        self.memory = DeviceMemory(name, context, self.health)
        self.programs = KernelPrograms(name, context)
        self.completion = CompletionThread(f"{name} completion", _wait_for)
        self.queues = QueueGroup(self, self.health, self.completion.watch)
        self.upload = self._executor("upload", reads_host=True)
        self.download = self._executor("download")
        self._computing: list[DeviceStreamExecutor] = []
        self._computing_lock = threading.Lock()
        self._setup_queue = context.queue(f"{name} setup")
        self._setup_lock = threading.Lock()
        self._capture_lock = threading.Lock()

    @property
    def facts(self) -> DeviceFacts:
        """What the device says of itself."""
        return self._context.facts

    def compute(self, number: int) -> DeviceStreamExecutor:
        """Return the queue of this number, from 0 on, for launches; made when it is first asked.

        Launches of different queues run side by side where the device has room.
        """
        with self._computing_lock:
            while len(self._computing) <= number:
                suffix = f" {len(self._computing)}" if self._computing else ""
                self._computing.append(self._executor(f"compute{suffix}"))
            return self._computing[number]

    def host_memory(self, size_bytes: int) -> HostMemory:
        """Make host memory that the device copies from at full speed. Blocks a little."""
        try:
            return self._context.host_memory(size_bytes)
        except DriverError as error:
            raise self.health.translate(error, "taking host memory for copies") from error

    def adopt(self, given: Any, what: str) -> AdoptedArray:
        """Take a caller's array in the device's memory as it is; see AdoptArray."""
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
        for executor in (self.upload, *self._computing, self.download):
            executor.close()
        self.completion.close()
        self._context.close()

    def __repr__(self) -> str:
        state = "lost" if self.health.lost else f"{self.memory.taken_bytes} bytes taken"
        return f"<{type(self).__name__} {self.name!r} {state}>"

    def _executor(self, queue: str, *, reads_host: bool = False) -> DeviceStreamExecutor:
        name = f"{self.name} {queue}"
        stream = QueueStream(name, self._context.queue(name), self.queues)
        return DeviceStreamExecutor(stream, reads_host=reads_host)


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
