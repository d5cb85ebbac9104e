"""A device in use: its context, three queues, one completion thread, memory and built kernels.

Theory of operation. All networks on a device share what is here. Uploads, launches and downloads
have a queue each, with events between them, so that those of different runs overlap. The one
completion thread waits for nothing but the last event of a run, on the download queue; errors of
earlier commands reach that event through wait lists.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ...executors import CompletionThread, DeviceEvent, DeviceStreamExecutor
from .device_health import DeviceHealth
from .device_memory import DeviceMemory
from .driver import Bytes, Context, DeviceFacts, DriverError, HostMemory, Memory
from .kernel_programs import KernelPrograms
from .queue_stream import QueueEvent, QueueStream

__all__ = ["OpenedDevice"]


class OpenedDevice:
    """One device, for all networks on it. Thread-safe."""

    def __init__(self, name: str, context: Context) -> None:
        self.name, self._context = name, context
        self.health = DeviceHealth(name)
        self.memory = DeviceMemory(name, context, self.health)
        self.programs = KernelPrograms(name, context)
        self.completion = CompletionThread(f"{name} completion", self._wait_for)
        self.upload = self._executor("upload")
        self.compute = self._executor("compute")
        self.download = self._executor("download")
        self._setup_queue = context.queue(f"{name} setup")
        self._setup_lock = threading.Lock()

    @property
    def facts(self) -> DeviceFacts:
        """What the device says of itself."""
        return self._context.facts

    def host_memory(self, size_bytes: int) -> HostMemory:
        """Make host memory that the device copies from at full speed. Blocks a little."""
        try:
            return self._context.host_memory(size_bytes)
        except DriverError as error:
            raise self.health.translate(error, "taking host memory for copies") from error

    def write_now(self, copies: Iterable[tuple[Memory, Bytes]]) -> None:
        """Copy to the device and wait; for weights, on a compile thread."""
        with self._setup_lock:
            try:
                events = [self._setup_queue.write(*pair) for pair in copies]
                for event in events:
                    event.wait()
            except DriverError as error:
                raise self.health.translate(error, "uploading weights") from error

    def close(self) -> None:
        """End its threads; when no network is left on it. Blocks."""
        for executor in (self.upload, self.compute, self.download):
            executor.close()
        self.completion.close()
        self._context.close()

    def __repr__(self) -> str:
        state = "lost" if self.health.lost else f"{self.memory.taken_bytes} bytes taken"
        return f"<{type(self).__name__} {self.name!r} {state}>"

    def _executor(self, queue: str) -> DeviceStreamExecutor:
        name = f"{self.name} {queue}"
        stream = QueueStream(
            name, self, self._context.queue(name), self.health, self.completion.watch
        )
        return DeviceStreamExecutor(stream)

    def _wait_for(self, event: DeviceEvent) -> None:
        assert isinstance(event, QueueEvent)
        try:
            event.wait()
        except DriverError as error:
            raise self.health.translate(error, f"computing ({event.stream.name})") from error
        self.health.note_success()
