"""Runs whose stages depend on each other as a graph: a line is ``run.py``."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns

from ...errors import NotSupportedError
from ...executors import NO_LANE, NOW, Lane, Ready, Then, hand_over
from ..tracing.recorder import RunMark, SpanRecorder
from .stage import Again, Stage, Stop, stop_if_interrupted

__all__ = ["GraphRun", "StageGraph"]


class StageGraph:
    """Which stage waits for which: made once, for all runs. Immutable.

    ``needs[i]`` lists the stages whose end stage ``i`` waits for.
    """

    def __init__(self, needs: Sequence[Sequence[int]]) -> None:
        self.needs = tuple(map(tuple, needs))
        self.missing = tuple(map(len, needs))
        """How many stages each waits for."""
        self.roots = tuple(index for index, wanted in enumerate(needs) if not wanted)
        followers: list[list[int]] = [[] for _ in needs]
        for index, wanted in enumerate(needs):
            for needed in wanted:
                followers[needed].append(index)
        self.followers = tuple(map(tuple, followers))


class GraphRun:
    """One run whose stages depend on each other as a graph; independent ones run side by side.

    A stage starts when the last of those that it needs has been handed over, after the join of
    their tokens. After an error nothing new starts, and ``then`` comes when nothing is outstanding,
    with the join of all tokens and the first error.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        graph: StageGraph,
        stop: Stop,
        then: Then,
        recorder: SpanRecorder,
        run: RunMark = (0, 0, 0),
    ) -> None:
        self._stages, self._graph = stages, graph
        self._stop = stop
        self._then: Then | None = then
        self._recorder, self._run = recorder, run
        self._lock = threading.Lock()
        self._missing = list(graph.missing)
        self._tokens: list[Ready] = [NOW] * len(stages)
        self._over: set[int] = set()
        self._startable: deque[int] = deque(graph.roots)
        """Stages that nothing more has to come before, and that have not been handed over."""
        self._outstanding = len(graph.roots)
        self._left = len(stages)
        self._error: BaseException | None = None
        self._after: Ready = NOW

    @property
    def place(self) -> str:
        """How far it is, for messages."""
        return f"{len(self._stages) - self._left} of {len(self._stages)} stages done"

    @property
    def stage(self) -> str:
        """The names of the stages that nothing more has to come before, and that are not over."""
        over, needs = self._over.copy(), self._graph.needs
        return ", ".join(
            stage.name
            for index, stage in enumerate(self._stages)
            if index not in over and over.issuperset(needs[index])
        )

    def start(self, after: Ready = NOW) -> None:
        """Begin once ``after`` has fired. Never blocks."""
        self._after = after
        if not self._graph.roots:
            self._end(after, self._stop.error)
            return
        try:
            self._hand_over_startable()
        except Exception as error:  # no memory for a call
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Start nothing more; it ends once what it has handed over has ended."""
        with self._lock:
            self._error = self._error or error
            while self._startable:
                try:
                    self._startable.popleft()
                except IndexError:  # another thread has taken it
                    break
                self._outstanding -= 1
            is_last = self._outstanding == 0
        if is_last:
            self._end(self._after, error)

    def _hand_over_startable(self) -> None:
        startable = self._startable
        while startable:
            try:
                index = startable.popleft()
            except IndexError:  # another thread has taken it
                return
            try:
                run = _StageRun()
                run.graph, run.index = self, index
                hand_over(run.begin)
            except Exception:  # no memory for the call: nothing was begun
                startable.appendleft(index)
                raise

    def _end(self, ready: Ready, error: BaseException | None) -> None:
        """Tell the end, once."""
        then, self._then = self._then, None
        if then is not None:
            try:
                hand_over(then, ready, error)
            except Exception:  # no memory for the call: `then` has not been called
                self._then = then
                raise


class _StageRun:
    """One stage of a run; its executor reports to it, too, where a call finds no memory.

    Made without ``__init__``, and with the bodies here: each call of a stage shows.
    """

    graph: GraphRun
    index: int
    queued_ns = 0
    ready: Ready | None = None
    """What it has ended with."""

    def begin(self) -> None:
        graph = self.graph
        wanted, tokens = graph._graph.needs[self.index], graph._tokens
        if len(wanted) == 1:
            after = tokens[wanted[0]]
        else:
            after = Ready.join(tokens[needed] for needed in wanted) if wanted else graph._after
        self.queued_ns = perf_counter_ns()
        try:
            if graph._stop.error is not None:
                raise graph._stop.error
            graph._stages[self.index].executor.run(self.call, after, self.ended)
        except BaseException as refused:
            stop_if_interrupted(graph._stop, refused)
            self.ended(after, refused)

    def call(self, lane: Lane) -> Ready:
        graph = self.graph
        if graph._stop.error is not None:
            raise graph._stop.error
        stage = graph._stages[self.index]
        started_ns = perf_counter_ns()
        try:
            ready = stage.function(lane)
        finally:
            if lane is not NO_LANE:  # binding a sub-request is no executor's work
                ended_ns = perf_counter_ns()
                graph._recorder.record(
                    graph._run, stage, lane, self.queued_ns, started_ns, ended_ns
                )
        if type(ready) is Again:  # what follows would start without what the stage makes
            raise NotSupportedError(
                f"stage {stage.name!r} of a graph asks to be run again; only a line does"
            )
        return ready

    def ended(self, ready: Ready, error: BaseException | None) -> None:
        """Go on where it has ended; again if that has raised."""
        graph, index = self.graph, self.index
        self.ready = ready
        with graph._lock:
            if index not in graph._over:
                graph._over.add(index)
                graph._tokens[index] = ready
                graph._error = graph._error or error
                graph._left -= 1
                if graph._error is None and graph._stop.error is None:
                    for follower in graph._graph.followers[index]:
                        graph._missing[follower] -= 1
                        if graph._missing[follower] == 0:
                            graph._startable.append(follower)
                            graph._outstanding += 1
                graph._outstanding -= 1
            is_last = graph._outstanding == 0
        if graph._startable:
            graph._hand_over_startable()
        if is_last:
            tokens = graph._tokens
            error = graph._error or (graph._stop.error if graph._left else None)
            graph._end(NOW if tokens.count(NOW) == len(tokens) else Ready.join(tokens), error)

    def hop_failed(self, error: BaseException) -> None:
        """End, or go through its end again: there was no memory for a call of those above."""
        self.ended(self.ready or self.graph._after, error)
