"""An in-order queue of the driver as an executor sees it, and the keeper of unfinished copies.

Theory of operation. What a stage enqueues, and what it waits for, is noted until the next event is
recorded. That event waits for all of it, so that an error of any command, of earlier stages too,
reaches what waits for the event: a queue goes on after a command that has failed. Where the
driver refuses a marker, the last command is the event, since the queue is in order. The commands'
own events, which keep host arrays alive, belong to the stream until the device has passed them: to
drop an unfinished copy event blocks with the GIL held, and a run that was cancelled drops all that
it has. When the stream releases them it asks whether they failed, and when the device did them if
that is wanted, and tells; what they waited for in other queues is asked first. So the streams of a
device share a lock, and nothing is taken from a stream's list before its times have been given on.
A thread that has waited for an event has all released that is known to be over with it, and the
device is asked for nothing else.
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

_MANY = 32
"""Unfinished submissions beyond which the device is asked which of them are over."""


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
        if submission.is_passed:
            submission.stream.forget_until(submission)
        else:
            group.forget_finished()
        stream, cause = submission.failure or (submission.stream.name, refused)
        if cause is not None:
            raise group.health.translate(cause, f"computing ({stream})") from cause
        group.health.note_success()


class QueueGroup:
    """What the streams of one device share; ``device`` is what their events name as theirs."""

    def __init__(self, device: object, health: DeviceHealth) -> None:
        self.device, self.health = device, health
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
    """One queue of a device. Stages enqueue by ``write``, ``launch`` and ``read``.

    ``watch`` is given its events when somebody asks when they fire.
    """

    def __init__(
        self, name: str, queue: Queue, group: QueueGroup, watch: Callable[[DeviceEvent], None]
    ) -> None:
        self.name, self.device, self.group, self._watch = name, group.device, group, watch
        self.queue, self._health = queue, group.health
        self._markers: list[Event] = []
        """What the open submission waits for."""
        self._open = Submission(self)
        self._work: StageWork | None = None
        self.is_last = False
        """The host will sleep for the end of the stage that has begun."""
        self.copied_bytes: dict[str, int] = {}
        """What the stage that began last has enqueued copies of, by kind."""
        self.unfinished: deque[Submission[QueueStream]] = deque()
        """What the device has not been seen to have passed."""
        self._passed_ns = 0
        group.streams.append(self)

    def _note_device_copy(self, size_bytes: int) -> None:
        self.copied_bytes["device"] = self.copied_bytes.get("device", 0) + size_bytes

    def write(self, target: Memory, source: Bytes) -> Event:
        """Enqueue a copy to the device; keeps ``source`` until it is over."""
        event = self._enqueue("uploading", self.queue.write, target, source)
        copied = self.copied_bytes
        copied["upload"] = copied.get("upload", 0) + source.nbytes
        return event

    def read(self, target: Bytes, source: Memory) -> Event:
        """Enqueue a copy to the host; keeps ``target`` until it is over."""
        event = self._enqueue("downloading", self.queue.read, target, source)
        copied = self.copied_bytes
        copied["download"] = copied.get("download", 0) + target.nbytes
        return event

    def launch(
        self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int]
    ) -> Event:
        """Enqueue a kernel."""
        launch = self.queue.launch
        return self._enqueue("enqueueing a kernel", launch, kernel, global_size, local_size)

    def replay(self, launch_graph: LaunchGraph) -> Event:
        """Enqueue all that a launch graph does; keeps it until that is over."""
        event = self._enqueue("replaying launches", self.queue.replay, launch_graph)
        self._open.kept.append(launch_graph)
        return event

    def copy_from(
        self,
        source: AdoptedArray,
        target: Memory,
        size_bytes: int,
        target_offset_bytes: int,
        source_offset_bytes: int = 0,
    ) -> Event:
        """Enqueue a copy of a caller's array, behind what its owner has enqueued; keeps it."""
        offsets_bytes = target_offset_bytes, source_offset_bytes
        event = self._copy(source, target, source.memory, size_bytes, *offsets_bytes)
        self._note_device_copy(size_bytes)
        return event

    def copy_to(self, target: AdoptedArray, source: Memory) -> Event:
        """Enqueue a copy to a caller's array, behind what its owner has enqueued; keeps it."""
        event = self._copy(target, target.memory, source, target.size_bytes)
        self._note_device_copy(target.size_bytes)
        return event

    def keep(self, used: object) -> None:
        """Keep what commands use that are enqueued by the stage that has begun."""
        self._open.kept.append(used)

    @property
    def stage_work(self) -> StageWork | None:
        """What the function that is enqueueing has enqueued; None before its first command."""
        return self._work

    def wait_event(self, event: DeviceEvent) -> None:
        assert isinstance(event, QueueEvent)
        submission = event.submission
        assert submission.marker is not None
        try:
            self.queue.wait_for([submission.marker])
        except DriverError as error:
            raise self._refused(error, "enqueueing") from error
        self._open.awaited.append(submission)
        self._markers.append(submission.marker)

    def record_event(self) -> QueueEvent:
        submission, self._open = self._open, Submission(self)
        markers, self._markers = self._markers, []
        is_last, self.is_last = self.is_last, False
        try:
            submission.marker = self.queue.marker([*markers, *submission.events], is_last=is_last)
        except DriverError as error:
            refusal = self._refused(error, "enqueueing")
            if not submission.events:
                raise refusal from error
            submission.marker = submission.events[-1]
        if len(self.unfinished) > _MANY:
            self.forget_finished()
        with self.group.lock:
            self.unfinished.append(submission)
        event = QueueEvent(self.device, self._watch)
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

    def forget_finished(self) -> None:
        """Release the commands that are over, and tell when they were. Any thread; short."""
        last: Submission[QueueStream] | None = None
        with self.group.lock:
            for submission in self.unfinished:
                is_over = submission.is_passed or submission.is_over
                if is_over:
                    last = submission
                elif is_over is not None:
                    break
        if last is not None:
            self.forget_until(last)

    def forget_until(self, last: Submission[QueueStream]) -> None:
        """Release the commands up to those of a submission that is over, and what they awaited."""
        over: list[Submission[QueueStream]] = []
        path = [last]
        """What is to be settled, each before what stands in front of it."""
        with self.group.lock:
            while path:
                wanted = path[-1]
                if wanted.is_settled:
                    path.pop()
                    continue
                stream = wanted.stream
                first = stream.unfinished[0]
                for awaited in reversed(first.awaited):
                    if not awaited.is_settled:
                        path.append(awaited)
                if path[-1] is wanted:
                    stream._passed_ns = first.settle(self.group.clock, stream._passed_ns)
                    over.append(first)
                    stream.unfinished.popleft()
        for submission in over:  # outside the lock: it frees host arrays
            submission.events, submission.works, submission.kept = [], [], []

    def _copy(self, array: AdoptedArray, *copied: Any) -> Event:
        self._open.kept.append(array)

        def copy() -> Event:
            if array.written is not None:
                self.queue.wait_for([array.written])
            return self.queue.copy(*copied)

        return self._enqueue("copying an array of the device", copy)

    def _enqueue(self, doing: str, enqueue: Callable[..., Event], *given: Any) -> Event:
        is_timed = self.queue.is_timed
        before_ns = perf_counter_ns() if is_timed else 0
        try:
            event = enqueue(*given)
        except DriverError as error:
            raise self._refused(error, doing) from error
        self._open.events.append(event)
        if is_timed:
            works, work = self._open.works, self._work
            if work is None or not works:
                self._work = StageWork(event, before_ns, perf_counter_ns())
                works.append(self._work)
            else:
                work.last = event
        return event

    def _refused(self, error: DriverError, doing: str) -> DeviceError:
        return self._health.translate(error, f"{doing} on {self.name}")
