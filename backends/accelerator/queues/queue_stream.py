"""An in-order queue of the driver as an executor sees it, and the keeper of unfinished copies.

Theory of operation. What a stage enqueues, and what it waits for, is noted until the next event is
recorded. That event waits for all of it, so that an error of any command, of earlier stages too,
reaches whoever waits for the event: a queue goes on after a command that has failed. Where the
driver refuses a marker, the last command is the event, since the queue is in order. The commands'
own events, which keep host arrays alive, belong to the stream until the device has passed them: to
drop an unfinished copy event blocks with the GIL held, and a run that was cancelled drops all that
it has. When the stream lets go of them it asks when the device did them and whether they failed,
and tells; what they waited for in other queues is asked first. So the streams of a device share a
lock, and nothing is taken from a stream's list before it has been told.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from ....executors import DeviceClock, DeviceEvent, DeviceStream, TellTimes
from .device_health import DeviceHealth
from .driver import (
    AdoptedArray,
    Bytes,
    DriverError,
    ErrorKind,
    Event,
    Kernel,
    Memory,
    Queue,
    Recording,
)
from .queue_section import QueueSection, StageWork

__all__ = ["QueueEvent", "QueueGroup", "QueueStream"]


class QueueEvent(DeviceEvent):
    """A marker in a queue, behind a section of it."""

    __slots__ = ("section",)

    def __init__(self, section: QueueSection[QueueStream]) -> None:
        super().__init__(section.stream.device, section.stream.group.watch)
        self.section = section

    @property
    def marker(self) -> Event:
        """The driver's event."""
        assert self.section.marker is not None
        return self.section.marker

    def wait(self) -> None:
        """Block until the device has passed it; raises DeviceError if what is behind it failed."""
        section, group, refused = self.section, self.section.stream.group, None
        try:
            self.marker.wait()
            section.is_passed = True
        except DriverError as error:
            section.is_passed = error.kind is ErrorKind.WAITED_FOR_FAILURE
            refused = error
        group.forget_finished()
        stream, cause = section.failure or (section.stream.name, refused)
        if cause is not None:
            raise group.health.translate(cause, f"computing ({stream})") from cause
        group.health.note_success()


class QueueGroup:
    """What the streams of one device share; ``device`` is what their events name as theirs."""

    def __init__(
        self, device: object, health: DeviceHealth, watch: Callable[[DeviceEvent], None]
    ) -> None:
        self.device, self.health, self.watch = device, health, watch
        self.clock = DeviceClock()
        self.lock = threading.Lock()
        """For what the streams have not finished; held shortly, and never while enqueueing."""
        self.streams: list[QueueStream] = []

    def forget_finished(self) -> None:
        """Let all streams go of what is over. Any thread; short."""
        for stream in self.streams:
            stream.forget_finished()


class QueueStream(DeviceStream):
    """One queue of a device. Stages enqueue by ``write``, ``launch`` and ``read``."""

    def __init__(self, name: str, queue: Queue, group: QueueGroup) -> None:
        self.name, self.device, self.group = name, group.device, group
        self._queue, self._health = queue, group.health
        self._awaited: list[QueueEvent] = []
        self._open = QueueSection(self)
        self._work: StageWork | None = None
        self._unfinished: deque[QueueSection[QueueStream]] = deque()
        self._passed_ns = 0
        group.streams.append(self)

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

    def replay(self, recording: Recording) -> Event:
        """Enqueue all launches of a recording; keeps it until they are over."""
        section = self._open
        event = self._note("replaying launches", lambda: self._queue.replay(recording))
        section.kept.append(recording)
        return event

    def copy_from(
        self, source: AdoptedArray, target: Memory, size_bytes: int, target_offset_bytes: int
    ) -> Event:
        """Enqueue a copy of a caller's array, behind what its owner has enqueued; keeps it."""
        return self._copy(source, target, source.memory, size_bytes, target_offset_bytes)

    def copy_to(self, target: AdoptedArray, source: Memory) -> Event:
        """Enqueue a copy to a caller's array, behind what its owner has enqueued; keeps it."""
        return self._copy(target, target.memory, source, target.size_bytes)

    @property
    def stage_work(self) -> StageWork | None:
        """What the function that is enqueueing has enqueued; None before its first command."""
        return self._work

    def wait_event(self, event: DeviceEvent) -> None:
        assert isinstance(event, QueueEvent)
        try:
            self._queue.wait_for([event.marker])
            self._awaited.append(event)
        except DriverError as error:
            raise self._health.translate(error, f"enqueueing on {self.name}") from error

    def record_event(self) -> QueueEvent:
        section, self._open = self._open, QueueSection(self)
        awaited, self._awaited = self._awaited, []
        section.awaited = [event.section for event in awaited]
        markers = [event.marker for event in awaited]
        try:
            section.marker = self._queue.marker([*markers, *section.events])
        except DriverError as error:
            refusal = self._health.translate(error, f"enqueueing on {self.name}")
            if not section.events:
                raise refusal from error
            section.marker = section.events[-1]
        self.forget_finished()
        with self.group.lock:
            self._unfinished.append(section)
        return QueueEvent(section)

    def tell_times(self, tell: TellTimes) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        with self.group.lock:
            work.tell, times = tell, work.times
        if times is not None:  # the stage recorded an event itself, and the device was quick
            tell(*times)

    @property
    def unfinished_count(self) -> int:
        """How many recorded events the stream keeps commands for."""
        return len(self._unfinished)

    def forget_finished(self) -> None:
        """Let go of the commands that are over, and tell when they were. Any thread; short."""
        if not self._unfinished:
            return
        over: list[QueueSection[QueueStream]] = []
        with self.group.lock:
            count = self._over_count()
            if count:
                self._settle(self._unfinished[count - 1])
            while len(over) < count:
                over.append(self._unfinished.popleft())
        for section in over:  # outside the lock: it frees host arrays
            section.let_go()

    def _over_count(self) -> int:
        """Count the sections that the device is done with: all before the last that is over."""
        count = 0
        for number, section in enumerate(self._unfinished, 1):
            is_over = section.is_over
            if is_over:
                count = number
            elif is_over is not None:
                break
        return count

    def _settle(self, last: QueueSection[QueueStream]) -> None:
        """Settle the sections up to one that is over, and first what they waited for."""
        for section in self._unfinished if not last.is_settled else ():
            if not section.is_settled:
                for awaited in section.awaited:
                    awaited.stream._settle(awaited)
                self._passed_ns = section.settle(self.group.clock, self._passed_ns)
            if section is last:
                return

    def _copy(self, array: AdoptedArray, *copied: Any) -> Event:
        section = self._open
        section.kept.append(array)

        def enqueue() -> Event:
            self._queue.wait_for([array.written])
            return self._queue.copy(*copied)

        return self._note("copying an array of the device", enqueue)

    def _note(self, doing: str, enqueue: Callable[[], Event]) -> Event:
        section = self._open
        is_first = self._work is None or not section.works
        before_ns = perf_counter_ns() if is_first else 0
        try:
            event = enqueue()
        except DriverError as error:
            raise self._health.translate(error, f"{doing} on {self.name}") from error
        section.events.append(event)
        if is_first or self._work is None:
            self._work = StageWork(event, before_ns, perf_counter_ns())
            section.works.append(self._work)
        else:
            self._work.last = event
        return event
