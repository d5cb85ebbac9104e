"""Stages on a device's own in-order streams: enqueued, not waited for.

Theory of operation. A device gives three things: streams that do their work in order, events
recorded on them, and a blocking call that returns when an event has fired. On top of these:

- A function is called on the host as soon as nothing but events of its own device is left to wait
  for; for those the stream waits on the device. No thread waits for the
  rest of what ``after`` joins: the one that fires the last of it enqueues the function, for another
  device's event that device's completion thread.
- Where functions read on the host what ``after`` stands for, such as inputs to be copied, nothing
  is left to the stream: they go through ``ReadingHost``, another door to the same executor.
- Several threads may bring work at once, and a function may bring more. The first to come enqueues
  for all, in the order of arrival, outside any lock: no thread waits for another, nothing nests,
  and a stream's functions never overlap on the host.
- The executor records the event: after a function that returned ``NOW``, and after one that
  raised, since it may have enqueued something first. A function may also return an event of its
  own. Even if it enqueued nothing, ``NOW`` would be wrong after a wait on the device.
- An event costs the host nothing until it is asked when it fires. Only then is it given to the
  device's one completion thread. In a linear run that is the last event alone.
- A stage's span on the host is the enqueueing. The stream reports what the device did
  (``tell_times``), when it releases the work; no thread waits for that.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

from ..errors import ClosedError, DeviceError
from .base import (
    NOW,
    HostReady,
    Lane,
    Ready,
    TaskExecutor,
    Then,
    WhenReady,
    checked,
    refuse_own_thread,
    tell_owner,
)
from .device_times import TellTimes
from .fork import ProcessMark
from .parking import Parking, tell
from .streams import StreamsConfig, StreamsExecutor


class DeviceEvent(HostReady):
    """A point in the work of a device; a backend's subclass adds the driver's handle.

    ``watch`` gets the event when somebody first asks when it fires, and has to see to it that
    ``fire`` is called: CompletionThread.watch does. Until then ``is_ready`` is False even if the
    device has passed it, unless the subclass asks the driver.
    """

    __slots__ = ("_watch", "device")

    device: object

    def __init__(self, device: object, watch: Callable[[DeviceEvent], None]) -> None:
        # Not by super().__init__: one is made for each stage of each run.
        self._lock = threading.Lock()
        self._calls = []
        self._fired, self._error = False, None
        self.device, self._watch = device, watch

    def when_ready(self, call: WhenReady) -> None:
        with self._lock:
            has_fired, is_watched = self._fired, bool(self._calls)
            if not has_fired:
                self._calls.append(call)
        if has_fired:
            call(self._error)
        elif not is_watched:
            self._watch(self)


class DeviceStream(ABC):
    """One in-order stream of a device (CUDA stream, OpenCL queue), as the executor sees it.

    All may be called on any thread, never on two at once, and only enqueue. ``device`` is what its
    events name as theirs, compared by identity.
    """

    name: str
    device: object

    @abstractmethod
    def wait_event(self, event: DeviceEvent) -> None:
        """Have what is enqueued from here on wait, on the device, for this event of the device."""

    @abstractmethod
    def record_event(self) -> DeviceEvent:
        """Make the event that fires when all that is enqueued so far has ended.

        It fires with an error if that work failed, or if an event that it waited for did.
        """

    def tell_times(self, tell: TellTimes) -> None:
        """(optional) Tell when the device did what was enqueued since this was last called.

        Called behind the functions of stages, on the thread that enqueues. ``tell`` is called at
        most once, before the last event of the run fires, and must not keep the work alive: not
        at all if nothing was enqueued, it failed, or the device does not know. Never raises.
        """
        return


class DeviceLane(Lane):
    """The lane of a device stream; ``stream`` is where its functions enqueue.

    ``name`` is the stream's, for spans of what the device does; ``host_name`` names the row of the
    enqueueing.
    """

    __slots__ = ("host_name", "stream")

    def __init__(self, stream: DeviceStream) -> None:
        super().__init__(stream.name)
        self.stream = stream
        self.host_name = f"{stream.name} host"


class CompletionThread:
    """The one thread of a device that sleeps until events fire, and calls what waits for them.

    ``wait_for`` blocks until the device has passed the event and raises the device's error; it is
    called with the oldest event first. Daemon, started by the first event; no error ends it.
    """

    def __init__(self, name: str, wait_for: Callable[[DeviceEvent], None]) -> None:
        self.name = name
        self._wait_for = wait_for
        self._executor = StreamsExecutor(StreamsConfig(name, thread_count=1))
        self._process = ProcessMark()

    def watch(self, event: DeviceEvent) -> None:
        """Fire the event once the device has passed it. Any thread; does not block.

        After close, and where no thread can be started, the calling thread waits itself: to answer
        early would free memory under the device. In a forked child it fires with ClosedError.
        """
        if not self._process.is_current:
            event.fire(self._process.error(f"device thread {self.name!r}"))
            return
        try:
            self._executor.run(partial(self._wait, event), NOW, partial(self._fire, event))
        except (ClosedError, DeviceError):
            self._fire_here(event)

    def close(self) -> None:
        """Wait until all watched events have fired, and join the thread; twice is fine. Blocks.

        Raises RequestStateError on one of aioinfer's own threads.
        """
        self._executor.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self._executor.waiting_count} waiting>"

    def _wait(self, event: DeviceEvent, _lane: Lane) -> Ready:
        self._wait_for(event)
        return NOW

    def _fire(self, event: DeviceEvent, _ready: Ready, error: BaseException | None) -> None:
        if isinstance(error, ClosedError):  # it came while the thread was ending
            self._fire_here(event)
        else:
            event.fire(error)

    def _fire_here(self, event: DeviceEvent) -> None:
        try:
            self._wait_for(event)
        except BaseException as error:
            event.fire(error)
        else:
            event.fire()


_Work = tuple[Callable[[Lane], Ready], tuple[DeviceEvent, ...], Then]
"""A function to be called for one stream, and the events to wait for on the device."""


def _refuse(
    events: tuple[DeviceEvent, ...], then: Then, ready: Ready, error: BaseException | None
) -> None:
    """Answer without calling the function; what it would have waited for is handed on."""
    tell(then, Ready.join((ready, *events)), error)


class DeviceStreamExecutor(TaskExecutor):
    """Stages on one in-order stream of a device; see the module's theory of operation."""

    def __init__(self, stream: DeviceStream) -> None:
        super().__init__(stream.name)
        self._stream, self._device = stream, stream.device
        self._lane = DeviceLane(stream)
        self._parking = Parking(f"executor {stream.name!r}")
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._arrived: deque[_Work] = deque()
        self._is_enqueuing = False
        self._is_ended = False

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        parking = self._parking
        if parking.is_closed or not parking.process.is_current:
            raise parking.refusal()
        if after is NOW:
            self._submit((function, (), then))
            return
        if isinstance(after, DeviceEvent) and after.device is self._device and not after.is_ready:
            self._submit((function, (after,), then))
            return
        own: list[DeviceEvent] = []
        others: list[Ready] = []
        for part in after.parts:
            if isinstance(part, DeviceEvent) and part.device is self._device:
                (others if part.is_ready else own).append(part)
            else:
                others.append(part)
        events = tuple(own)
        rest = Ready.join(others)
        if rest is NOW:
            self._submit((function, events, then))
        else:
            start = partial(self._submit, (function, events, then))
            parking.park(rest, start, partial(_refuse, events, then))

    def close(self, *, drain: bool = True) -> None:
        """Refuse new work, and wait until all that was accepted is enqueued; twice is fine.

        Blocks until the tokens of other devices that it waits for have fired; without drain that
        work ends with ClosedError. The device's own work goes on: its events tell when it ends.
        """
        refuse_own_thread(f"closing {self!r}")
        if not self._parking.is_in_its_process:
            return
        self._parking.close(drain=drain)
        with self._changed:
            self._changed.wait_for(lambda: not self._is_enqueuing)
            self._is_ended = True

    def __repr__(self) -> str:
        state = "closed" if self._parking.is_closed else f"{self._parking.count} held by a token"
        return f"<{type(self).__name__} {self.name!r} {state}>"

    def _submit(self, work: _Work) -> None:
        lock, arrived = self._lock, self._arrived
        with lock:
            is_late = self._is_ended
            if not is_late:
                arrived.append(work)
                if self._is_enqueuing:
                    return
                self._is_enqueuing = True
        if is_late:
            _, events, then = work
            tell(partial(_refuse, events, then), NOW, self._parking.refusal())
            return
        while True:
            del work
            with lock:
                if not arrived:
                    self._is_enqueuing = False
                    if self._parking.is_closed:
                        self._changed.notify_all()
                    return
                work = arrived.popleft()
            self._enqueue(*work)

    def _enqueue(
        self, function: Callable[[Lane], Ready], events: tuple[DeviceEvent, ...], then: Then
    ) -> None:
        ready, error = NOW, None
        waited_count = 0
        try:
            for event in events:
                self._stream.wait_event(event)
                waited_count += 1
            returned = function(self._lane)
            if returned is not NOW:
                ready = checked(returned)
        except BaseException as raised:
            error = raised
        if ready is NOW:
            try:
                ready = self._stream.record_event()
            except BaseException as lost:  # no event will come: what it waited for is all we have
                ready = Ready.join(events)
                error = lost if error is None else error
        if waited_count < len(events):  # the stream does not wait for these
            ready = Ready.join((ready, *events[waited_count:]))
        try:  # as ``tell`` does
            then(ready, error)
        except BaseException as raised:
            tell_owner(then, (ready,), raised)
        del function, then, error  # the error's traceback keeps this frame; it must not keep them


class ReadingHost(TaskExecutor):
    """A door to a device stream for functions that read on the host what ``after`` stands for.

    They are called once that has fired, events of the stream's own device included.
    """

    def __init__(self, executor: DeviceStreamExecutor) -> None:
        super().__init__(executor.name)
        self._executor = executor

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        if after is not NOW:
            fired = HostReady()  # which is of no device
            after.when_ready(fired.fire)
            after = fired
        self._executor.run(function, after, then)

    def close(self) -> None:
        """Close the executor behind it."""
        self._executor.close()
