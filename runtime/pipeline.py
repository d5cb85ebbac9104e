"""Runs: a request's stages on their way through executors, in a line.

Theory of operation. The thread that finishes a stage hands the next one to its executor together
with the :class:`Ready` token; no event loop is involved. What ends a run early is its
:class:`Stop`, shared with the runs inside it and looked at before every stage. A run calls ``then``
exactly once, when none of its host code is left; device work may still be under way, and the token
says until when. Stages that follow each other on one executor are one hop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter_ns

from ..executors import NOW, Lane, Ready, TaskExecutor, Then, hop
from .tracing import RunMark, SpanRecorder

__all__ = ["PipelineRun", "Stage", "Stop", "nobody", "stop_if_interrupted"]

NO_MARK: RunMark = (0, 0, 0)


class Stop:
    """What ends a run and all its sub-runs early: set once, by cancel, deadline or close.

    Setting it tells the listeners (the caller is answered, a queued run is dropped) and never calls
    a run's ``then``. ``listener`` is the first of them. Thread-safe; only ``set`` takes the lock,
    because each change of the list is one step, and who takes a listener out calls it.
    """

    __slots__ = ("_listeners", "_lock", "error")

    def __init__(self, listener: Callable[[], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = [] if listener is None else [listener]
        self.error: BaseException | None = None
        """Why the run is to end; None while it may go on."""

    def set(self, error: BaseException) -> bool:
        """End the run with this error; False if an earlier one stands. Listeners run here."""
        with self._lock:
            if self.error is not None:
                return False
            self.error = error
        while self._listeners:
            try:
                listener = self._listeners.pop(0)
            except IndexError:  # the last one was forgotten just now
                break
            listener()
        return True

    def when_set(self, listener: Callable[[], None]) -> None:
        """Call once it is set; at once if it is. Listeners never raise and never block."""
        self._listeners.append(listener)
        if self.error is not None and self.forget(listener):
            listener()

    def forget(self, listener: Callable[[], None]) -> bool:
        """Take a listener back; False says that it is unknown, or was or is being called."""
        try:
            self._listeners.remove(listener)
        except ValueError:
            return False
        return True

    def forget_all(self) -> None:
        """Take back all listeners, when nothing is left of the run that they could end."""
        self._listeners.clear()

    def raise_if_set(self) -> None:
        """Raise the error if it is set."""
        if self.error is not None:
            raise self.error


@dataclass(frozen=True)
class Stage:
    """A named part of a request, bound to one executor."""

    name: str
    executor: TaskExecutor
    function: Callable[[Lane], Ready]
    """Told on which lane it runs; ends with NOW or a device event."""
    part: Callable[[], str] | None = None
    """Tells, once the function has run, which part of the network it has run: for spans."""

    @cached_property
    def place(self) -> tuple[str, str]:
        """The names of the stage and of its executor: for spans."""
        return self.name, self.executor.name


class PipelineRun:
    """One run in a line; whoever finishes a stage starts the next."""

    __slots__ = (
        "_index",
        "_queued_ns",
        "_recorder",
        "_run",
        "_stages",
        "_then",
        "service_ns",
        "stop",
    )

    def __init__(
        self,
        stages: Sequence[Stage],
        stop: Stop,
        then: Then,
        recorder: SpanRecorder,
        run: RunMark = NO_MARK,
    ) -> None:
        self._stages, self.stop, self._then = stages, stop, then
        self._recorder, self._run = recorder, run
        self._index = 0
        self._queued_ns = 0
        self.service_ns = 0
        """How long its stages have run on their executors, together."""

    @property
    def place(self) -> str:
        """The stage that it is in, or whose device work is under way, for messages."""
        return f"in stage {self._stages[min(self._index, len(self._stages) - 1)].name!r}"

    def start(self, after: Ready = NOW) -> None:
        """Begin once ``after`` has fired. Never blocks."""
        hop(self._step, after, None)

    def _advance(self, ready: Ready, error: BaseException | None) -> None:
        hop(self._step, ready, error)

    def _step(self, ready: Ready, error: BaseException | None) -> None:
        error = error or self.stop.error
        if error is not None or self._index == len(self._stages):
            self.ended(ready, error)  # the token is handed on unwaited for, after an error too
            return
        self._queued_ns = perf_counter_ns()
        try:
            self._stages[self._index].executor.run(self._call, ready, self._advance)
        except BaseException as refused:  # a closed executor, on whichever thread
            stop_if_interrupted(self.stop, refused)
            self.ended(ready, refused)

    def ended(self, ready: Ready, error: BaseException | None) -> None:
        """Tell: no host code of the run is left; device work may be under way until the token."""
        then, self._then = self._then, nobody  # nor does an ended run keep anybody alive
        then(ready, error)

    def _call(self, lane: Lane) -> Ready:
        stages = self._stages
        stop = self.stop
        while True:
            if stop.error is not None:  # the queue has been waited through: ask again
                raise stop.error
            stage = stages[self._index]
            started_ns = perf_counter_ns()
            try:
                ready = stage.function(lane)
            finally:
                ended_ns = perf_counter_ns()
                self._recorder.record(self._run, stage, lane, self._queued_ns, started_ns, ended_ns)
            self.service_ns += ended_ns - started_ns
            self._index += 1
            if (
                self._index == len(stages)
                or stages[self._index].executor is not stage.executor
                or not ready.is_ready
                or ready.error is not None
            ):
                return ready
            self._queued_ns = ended_ns


def stop_if_interrupted(stop: Stop, error: BaseException) -> None:
    """Make sure that a stage does nothing if its executor has it after all.

    An executor that raises has kept nothing, but an interrupt (Ctrl-C) may come in between.
    """
    if not isinstance(error, Exception):
        stop.set(error)


def nobody(_ready: Ready, _error: BaseException | None) -> None:
    """Stand in for the ``then`` of a run that has ended."""
