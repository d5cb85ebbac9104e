"""Streams without a device: what is enqueued is recorded, and events fire when the test says so.

They keep the order that a real device guarantees and no other: within a stream work is done in the
order in which it was enqueued, between streams only events order anything. Time passes only in
``fire_next``, ``fire_all`` and ``fail``, on the thread that calls them, one such call at a time.

Times are virtual, so that tests of them are exact: work that is given how long it takes has a
begin and an end, as if every stream ran side by side with the others and began as soon as it could.
In which order the test fires events changes nothing of that.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AioInferError
from .device_stream import DeviceEvent, DeviceStream
from .device_times import TellTimes

if TYPE_CHECKING:
    import random


class ManualEvent(DeviceEvent):
    """An event of manual streams, named ``<stream>#<number>``."""

    __slots__ = ("fired_ns", "name")

    def __init__(self, name: str, device: ManualStreams) -> None:
        super().__init__(device, device._note_watched)
        self.name = name
        self.fired_ns = 0
        """When it fired, in virtual time."""

    def __repr__(self) -> str:
        return f"<ManualEvent {self.name} {'fired' if self.is_ready else 'waiting'}>"


@dataclass
class _Stage:
    """The timed work of a stage, and the function that is called with its times."""

    queued_ns: int
    event_number: int
    """How many events the stream had before it."""
    began_ns: int | None = None
    ended_ns: int = 0
    is_over: bool = False
    tell: TellTimes | None = None

    def tell_if_known(self) -> None:
        tell = self.tell
        if tell is not None and self.is_over and self.began_ns is not None:
            self.tell = None
            tell(self.queued_ns, self.began_ns, self.ended_ns)


@dataclass(frozen=True)
class _Command:
    """One entry of a stream: work, a wait for an event of another stream, or an own event."""

    label: str
    action: Callable[[], None] | None = None
    awaited: ManualEvent | None = None
    recorded: ManualEvent | None = None
    took_ns: int = 0
    stage: _Stage | None = None


class ManualStream(DeviceStream):
    """One in-order stream that a test fires; made by ``ManualStreams.stream``."""

    def __init__(self, name: str, device: ManualStreams) -> None:
        self.name = name
        self.device: ManualStreams = device
        self._commands: deque[_Command] = deque()
        self._event_count = 0
        self._error: BaseException | None = None  # of the work since the last event
        self._stage: _Stage | None = None  # that the next timed work belongs to
        self._passed: list[_Stage] = []  # since the last event
        self._now_ns = 0
        self._ready_ns = 0  # when the last event that it waited for had fired

    @property
    def outstanding_count(self) -> int:
        """How many commands the device has not done yet."""
        return len(self._commands)

    def enqueue(
        self,
        label: str,
        action: Callable[[], None] | None = None,
        poison: Callable[[], None] | None = None,
        took_ns: int | None = None,
    ) -> None:
        """Add work that the device does later, by calling ``action``.

        With ``took_ns`` its time is known, from the device's ``host_ns`` on; else it takes none.

        ``poison`` is called now: it spoils what the work will write (fills it with NaN), so that
        a read before the event has fired shows.
        """
        if poison is not None:
            poison()
        if took_ns is None:
            self._add(_Command(label, action=action))
            return
        if self._stage is None or self._stage.event_number != self._event_count:
            self._stage = _Stage(self.device.host_ns, self._event_count)
        self._add(_Command(label, action=action, took_ns=took_ns, stage=self._stage))

    def wait_event(self, event: DeviceEvent) -> None:
        if not isinstance(event, ManualEvent) or event.device is not self.device:
            raise AioInferError(
                f"{self!r} cannot wait for {event!r}, which is not an event of its device; "
                f"wait on the host"
            )
        self._add(_Command(f"wait {event.name}", awaited=event))

    def record_event(self) -> ManualEvent:
        with self.device._lock:
            self._event_count += 1
            event = ManualEvent(f"{self.name}#{self._event_count}", self.device)
        self._add(_Command(f"record {event.name}", recorded=event))
        return event

    def tell_times(self, tell: TellTimes) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.tell = tell
            stage.tell_if_known()

    def __repr__(self) -> str:
        return f"<ManualStream {self.name!r} {self.outstanding_count} enqueued>"

    def _add(self, command: _Command) -> None:
        with self.device._lock:
            self._commands.append(command)
            self.device.enqueued.append(f"{self.name}: {command.label}")

    def _next_ready(self) -> _Command | None:
        """Take the next command; None if there is none or it waits for an event not yet fired."""
        with self.device._lock:
            if not self._commands:
                return None
            awaited = self._commands[0].awaited
            if awaited is not None and not awaited.is_ready:
                return None
            return self._commands.popleft()

    def _advance(self) -> bool:
        """Do what comes up to and including the next event; False if that event is not reached."""
        while (command := self._next_ready()) is not None:
            self.device.done.append(f"{self.name}: {command.label}")
            if command.recorded is not None:
                error, self._error = self._error, None
                self._pass_event(command.recorded, error)
                return True
            try:
                if command.awaited is not None:
                    self._ready_ns = max(self._ready_ns, command.awaited.fired_ns)
                    if command.awaited.error is not None:
                        raise command.awaited.error
                if command.action is not None and self._error is None:
                    command.action()
            except BaseException as error:
                self._error = self._error or error
            if command.stage is not None:
                self._pass_work(command.stage, command.took_ns)
        return False

    def _pass_work(self, stage: _Stage, took_ns: int) -> None:
        if stage.began_ns is None:
            stage.queued_ns = max(stage.queued_ns, self._ready_ns)
            stage.began_ns = max(stage.queued_ns, self._now_ns)
            self._passed.append(stage)
        stage.ended_ns = self._now_ns = max(stage.began_ns, self._now_ns) + took_ns

    def _pass_event(self, event: ManualEvent, error: BaseException | None) -> None:
        passed, self._passed = self._passed, []
        event.fired_ns = self._now_ns = max(self._now_ns, self._ready_ns)
        for stage in passed if error is None else ():
            stage.is_over = True
            stage.tell_if_known()
        event.fire(error)


class ManualStreams:
    """Streams and events fired by hand, for tests of what is scheduled on a device.

    ``enqueued`` lists what the host has enqueued and ``done`` what the device has done, each in
    order, as "<stream>: <label>". ``watched`` lists the events whose firing the host asked for.
    """

    def __init__(self, name: str = "MANUAL.0") -> None:
        self.name = name
        self.enqueued: list[str] = []
        self.done: list[str] = []
        self.watched: list[ManualEvent] = []
        self.host_ns = 0
        """The host's clock for work with a time; a test sets it."""
        self.when_watched: Callable[[], None] | None = None
        """Called when the host has asked for an event's firing, on the thread that asks."""
        self._streams: dict[str, ManualStream] = {}
        self._lock = threading.Lock()

    def stream(self, name: str) -> ManualStream:
        """Return the stream of this name, made on the first call."""
        with self._lock:
            return self._streams.setdefault(name, ManualStream(name, self))

    def fire_next(self, stream: str) -> None:
        """Do the stream's work up to its next event, and fire that.

        Raises AioInferError where there is no event, or a wait for another stream comes before it.
        """
        if not self.stream(stream)._advance():
            raise AioInferError(f"{self.name}: {self._obstacle(stream)}")

    def fire_all(self, order: random.Random | None = None) -> int:
        """Fire events until none can, and say how many; what their firing enqueues is done too.

        The streams take turns; with ``order`` the next stream is drawn from it, which gives every
        order that a device is free to choose.
        """
        fired_count = 0
        while True:
            streams = list(self._streams.values())
            if order is not None:
                order.shuffle(streams)
            moved = 0
            for stream in streams:
                moved += stream._advance()
                if moved and order is not None:
                    break
            if not moved:
                return fired_count
            fired_count += moved

    def fail(self, stream: str, error: BaseException) -> None:
        """Make the stream's work before its next event fail, and fire that event with the error.

        Events that wait for that one fail with it. What comes later in the stream is not touched.
        """
        failing = self.stream(stream)
        failing._error = error
        self.fire_next(stream)

    def __repr__(self) -> str:
        streams = ", ".join(
            f"{stream.name}: {stream.outstanding_count} enqueued"
            for stream in self._streams.values()
        )
        return f"<ManualStreams {self.name!r} {streams or 'no streams'}>"

    def _obstacle(self, stream: str) -> str:
        commands = self.stream(stream)._commands
        if commands and commands[0].awaited is not None:
            return f"stream {stream!r} waits for {commands[0].awaited.name}; fire that first"
        return f"stream {stream!r} has no event to fire; record one after its work"

    def _note_watched(self, event: DeviceEvent) -> None:
        if isinstance(event, ManualEvent):
            self.watched.append(event)
        if self.when_watched is not None:
            self.when_watched()
