"""An in-order queue of the driver as an executor sees it, and the keeper of unfinished copies.

Theory of operation. What a stage enqueues, and what it waits for, is noted until the next event is
recorded. That event waits for all of it, so that an error of any command, of earlier stages too,
reaches what waits for the event: a queue goes on after a command that has failed. Where the
driver refuses a marker, the last command is the event, since the queue is in order. The commands'
own events, which keep host arrays alive, belong to the stream until the device has passed them: to
drop an unfinished copy event blocks with the GIL held, and a run that was cancelled drops all that
it has. When the stream releases them it asks when the device did them and whether they failed,
and tells; what they waited for in other queues is asked first. So the streams of a device share a
lock, and nothing is taken from a stream's list before its times have been given on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

from ....errors import DeviceError
from ....executors import DeviceClock, DeviceEvent, DeviceStream, TellTimes
from .device_health import DeviceHealth
from .driver import (
    AdoptedArray,
    Bytes,
    DriverError,
    ErrorKind,
    Event,
    Kernel,
    LaunchGraph,
    Memory,
    Queue,
)
from .submission import StageWork, Submission

__all__ = ["QueueEvent", "QueueGroup", "QueueStream"]


class QueueEvent(DeviceEvent):
    """A marker in a queue, behind a submission of it."""

    __slots__ = ("submission",)

    submission: Submission[QueueStream]

    def wait(self) -> None:
        """Block until the device has passed it; raises DeviceError if what is behind it failed."""
        submission, group, refused = self.submission, self.submission.stream.group, None
        assert submission.marker is not None
        try:
            submission.marker.wait()
            submission.is_passed = True
        except DriverError as error:
            submission.is_passed = error.kind is ErrorKind.WAITED_FOR_FAILURE
            refused = error
        group.forget_finished()
        stream, cause = submission.failure or (submission.stream.name, refused)
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
        """Release what is over of all streams. Any thread; short."""
        for stream in self.streams:
            if stream.unfinished:
                stream.forget_finished()


class QueueStream(DeviceStream):
    """One queue of a device. Stages enqueue by ``write``, ``launch`` and ``read``."""

    def __init__(self, name: str, queue: Queue, group: QueueGroup) -> None:
        self.name, self.device, self.group = name, group.device, group
        self._queue, self._health = queue, group.health
        self._markers: list[Event] = []
        """What the open submission waits for."""
        self._open = Submission(self)
        self._work: StageWork | None = None
        self.unfinished: deque[Submission[QueueStream]] = deque()
        """What the device has not been seen to have passed."""
        self._passed_ns = 0
        group.streams.append(self)

    def write(self, target: Memory, source: Bytes) -> Event:
        """Enqueue a copy to the device; keeps ``source`` until it is over."""
        before_ns = perf_counter_ns()
        try:
            event = self._queue.write(target, source)
        except DriverError as error:
            raise self._refused(error, "uploading") from error
        return self._note(event, before_ns)

    def read(self, target: Bytes, source: Memory) -> Event:
        """Enqueue a copy to the host; keeps ``target`` until it is over."""
        before_ns = perf_counter_ns()
        try:
            event = self._queue.read(target, source)
        except DriverError as error:
            raise self._refused(error, "downloading") from error
        return self._note(event, before_ns)

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        """Enqueue a kernel."""
        before_ns = perf_counter_ns()
        try:
            event = self._queue.launch(kernel, global_size, local_size)
        except DriverError as error:
            raise self._refused(error, "enqueueing a kernel") from error
        return self._note(event, before_ns)

    def replay(self, launch_graph: LaunchGraph) -> Event:
        """Enqueue all launches of a launch graph; keeps it until they are over."""
        before_ns = perf_counter_ns()
        try:
            event = self._queue.replay(launch_graph)
        except DriverError as error:
            raise self._refused(error, "replaying launches") from error
        self._open.kept.append(launch_graph)
        return self._note(event, before_ns)

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
        submission = event.submission
        assert submission.marker is not None
        try:
            self._queue.wait_for([submission.marker])
        except DriverError as error:
            raise self._refused(error, "enqueueing") from error
        self._open.awaited.append(submission)
        self._markers.append(submission.marker)

    def record_event(self) -> QueueEvent:
        submission, self._open = self._open, Submission(self)
        markers, self._markers = self._markers, []
        try:
            submission.marker = self._queue.marker([*markers, *submission.events])
        except DriverError as error:
            refusal = self._refused(error, "enqueueing")
            if not submission.events:
                raise refusal from error
            submission.marker = submission.events[-1]
        if self.unfinished:
            self.forget_finished()
        with self.group.lock:
            self.unfinished.append(submission)
        event = QueueEvent(self.device, self.group.watch)
        event.submission = submission
        return event

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
        return len(self.unfinished)

    def forget_finished(self) -> None:
        """Release the commands that are over, and tell when they were. Any thread; short."""
        over: list[Submission[QueueStream]] = []
        unfinished = self.unfinished
        with self.group.lock:
            count = 0  # all before the last that is over
            for number, submission in enumerate(unfinished, 1):
                is_over = submission.is_passed or submission.is_over
                if is_over:
                    count = number
                elif is_over is not None:
                    break
            if count and not unfinished[count - 1].is_settled:
                self._settle(unfinished[count - 1])
            while len(over) < count:
                over.append(unfinished.popleft())
        for submission in over:  # outside the lock: it frees host arrays
            submission.events, submission.works, submission.kept = [], [], []

    def _settle(self, last: Submission[QueueStream]) -> None:
        """Settle the submissions up to one that is over, and first what they waited for."""
        for submission in self.unfinished:
            if not submission.is_settled:
                for awaited in submission.awaited:
                    if not awaited.is_settled:
                        awaited.stream._settle(awaited)
                self._passed_ns = submission.settle(self.group.clock, self._passed_ns)
            if submission is last:
                return

    def _copy(self, array: AdoptedArray, *copied: Any) -> Event:
        self._open.kept.append(array)
        before_ns = perf_counter_ns()
        try:
            self._queue.wait_for([array.written])
            event = self._queue.copy(*copied)
        except DriverError as error:
            raise self._refused(error, "copying an array of the device") from error
        return self._note(event, before_ns)

    def _note(self, event: Event, before_ns: int) -> Event:
        submission, work = self._open, self._work
        submission.events.append(event)
        if work is None or not submission.works:
            self._work = StageWork(event, before_ns, perf_counter_ns())
            submission.works.append(self._work)
        else:
            work.last = event
        return event

    def _refused(self, error: DriverError, doing: str) -> DeviceError:
        return self._health.translate(error, f"{doing} on {self.name}")
