"""An in-order queue of the driver as an executor sees it, and the keeper of unfinished copies.

Theory of operation. What a stage enqueues, and what it waits for, is noted until the next event is
recorded. That event waits for all of it, so that an error of any command, of earlier stages too,
reaches whoever waits for the event: a queue goes on after a command that has failed. The
commands' own events, which keep host arrays alive, belong to the stream until the device has passed
them: to drop an unfinished copy event blocks with the GIL held, and a run that was cancelled drops
all that it has.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from ...executors import DeviceEvent, DeviceStream
from .device_health import DeviceHealth
from .driver import Bytes, DriverError, Event, Kernel, Memory, Queue

__all__ = ["QueueEvent", "QueueStream"]


class QueueEvent(DeviceEvent):
    """A marker in a queue."""

    __slots__ = ("marker", "stream")

    def __init__(
        self, stream: QueueStream, marker: Event, watch: Callable[[DeviceEvent], None]
    ) -> None:
        super().__init__(stream.device, watch)
        self.stream, self.marker = stream, marker

    def wait(self) -> None:
        """Block until the device has passed it; raises DriverError."""
        try:
            self.marker.wait()
        finally:
            self.stream.forget_finished()


class QueueStream(DeviceStream):
    """One queue of a device. Stages enqueue by ``write``, ``launch`` and ``read``."""

    def __init__(
        self,
        name: str,
        device: object,
        queue: Queue,
        health: DeviceHealth,
        watch: Callable[[DeviceEvent], None],
    ) -> None:
        self.name, self.device = name, device
        self._queue, self._health, self._watch = queue, health, watch
        self._lock = threading.Lock()
        self._fresh: list[Event] = []
        self._awaited: list[Event] = []
        self._unfinished: deque[tuple[Event | None, list[Event]]] = deque()

    def write(self, target: Memory, source: Bytes) -> Event:
        """Enqueue a copy to the device; keeps ``source`` until it is over."""
        return self._note("uploading", lambda: self._queue.write(target, source))

    def read(self, target: Bytes, source: Memory) -> Event:
        """Enqueue a copy to the host; keeps ``target`` until it is over."""
        return self._note("downloading", lambda: self._queue.read(target, source))

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        """Enqueue a kernel."""
        return self._note(
            "enqueueing a kernel", lambda: self._queue.launch(kernel, global_size, local_size)
        )

    def wait_event(self, event: DeviceEvent) -> None:
        assert isinstance(event, QueueEvent)
        try:
            self._queue.wait_for([event.marker])
            self._awaited.append(event.marker)
        except DriverError as error:
            raise self._health.translate(error, f"enqueueing on {self.name}") from error

    def record_event(self) -> QueueEvent:
        fresh, self._fresh = self._fresh, []
        awaited, self._awaited = self._awaited, []
        try:
            marker = self._queue.marker([*awaited, *fresh])
        except DriverError as error:
            self._keep(None, fresh)  # nobody can tell when they are over
            raise self._health.translate(error, f"enqueueing on {self.name}") from error
        self._keep(marker, fresh)
        return QueueEvent(self, marker, self._watch)

    @property
    def unfinished_count(self) -> int:
        """How many recorded events the stream keeps commands for."""
        return len(self._unfinished)

    def forget_finished(self) -> None:
        """Let go of the commands that are over. Any thread."""
        over = []
        with self._lock:
            while self._unfinished:
                marker, _ = self._unfinished[0]
                if marker is None or not marker.is_over:
                    break
                over.append(self._unfinished.popleft())
        del over  # outside the lock: it frees host arrays

    def _keep(self, marker: Event | None, events: list[Event]) -> None:
        self.forget_finished()
        with self._lock:
            self._unfinished.append((marker, events))

    def _note(self, doing: str, enqueue: Callable[[], Event]) -> Event:
        try:
            event = enqueue()
        except DriverError as error:
            raise self._health.translate(error, f"{doing} on {self.name}") from error
        self._fresh.append(event)
        return event
