"""Runs whose stages depend on each other as a graph: a line is ``run.py``."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from time import perf_counter_ns

from ...errors import NotSupportedError
from ...executors import NO_LANE, NOW, Lane, Ready, Then, hand_over, hop
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
        self._stop, self._then = stop, then
        self._recorder, self._run = recorder, run
        self._lock = threading.Lock()
        self._missing = list(graph.missing)
        self._tokens: list[Ready] = [NOW] * len(stages)
        self._over: set[int] = set()
        self._outstanding = 0
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
        roots = self._graph.roots
        self._outstanding = len(roots)
        if not roots:
            hand_over(self._then, after, self._stop.error)
        for index in roots:
            hop(self._begin, index)

    def _begin(self, index: int) -> None:
        wanted = self._graph.needs[index]
        if len(wanted) == 1:
            after = self._tokens[wanted[0]]
        else:
            after = Ready.join(self._tokens[needed] for needed in wanted) if wanted else self._after
        queued_ns = perf_counter_ns()
        ended = partial(self._ended, index)
        try:
            if self._stop.error is not None:
                raise self._stop.error
            self._stages[index].executor.run(partial(self._call, index, queued_ns), after, ended)
        except BaseException as refused:
            stop_if_interrupted(self._stop, refused)
            ended(after, refused)

    def _call(self, index: int, queued_ns: int, lane: Lane) -> Ready:
        if self._stop.error is not None:
            raise self._stop.error
        stage = self._stages[index]
        started_ns = perf_counter_ns()
        try:
            ready = stage.function(lane)
        finally:
            if lane is not NO_LANE:  # binding a sub-request is no executor's work
                ended_ns = perf_counter_ns()
                self._recorder.record(self._run, stage, lane, queued_ns, started_ns, ended_ns)
        if type(ready) is Again:  # what follows would start without what the stage makes
            raise NotSupportedError(
                f"stage {stage.name!r} of a graph asks to be run again; only a line does"
            )
        return ready

    def _ended(self, index: int, ready: Ready, error: BaseException | None) -> None:
        startable = []
        with self._lock:
            if index in self._over:
                return
            self._over.add(index)
            self._tokens[index] = ready
            self._error = self._error or error
            self._left -= 1
            if self._error is None and self._stop.error is None:
                for follower in self._graph.followers[index]:
                    self._missing[follower] -= 1
                    if self._missing[follower] == 0:
                        startable.append(follower)
            self._outstanding += len(startable) - 1
            is_last = self._outstanding == 0
        for follower in startable:
            hop(self._begin, follower)
        if is_last:
            error = self._error or (self._stop.error if self._left else None)
            hand_over(self._then, Ready.join(self._tokens), error)
