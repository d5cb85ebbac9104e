"""The way of short runs that are like the one before: each is one call (``atomic_run.py``).

Theory of operation. Most short runs of a network have arrays of the types and shapes that the one
before had. That one has been checked, counted in rows, given a plan and a program, and has gone
through its stage; what was found on the way is kept by the backend (``AlikeRuns``), and not asked
again of the next run whose arrays are exactly so. Whatever is not as it was, or is not here at once
(slot, lane, one of the locks), leaves the run to ``inline_route.py``, which says what is wrong, if
anything is. So does one run of SAMPLED: it tells how long they take, and counts what was noted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...executors import Lane, TaskExecutor
from ...executors.fork import ProcessMark
from ..loops.inline_turn import InlineTurn
from .admission import ages
from .atomic_run import AtomicRun, AtomicTerms, Attempt
from .inline_gate import ServiceTime
from .run_admission import RunAdmission
from .slot import AlikeRuns
from .stage import Stage

__all__ = ["SAMPLED", "AtomicRoute", "may_be_atomic"]

SAMPLED = 64
"""Of that many runs one goes the usual way, and takes some 10 us more."""


def may_be_atomic() -> bool:
    """True where a thread of Python keeps others out while it computes."""
    has_lock = getattr(sys, "_is_gil_enabled", None)
    return has_lock is None or bool(has_lock())


class _Known(NamedTuple):
    """What a run has left for those like it."""

    runs: AlikeRuns
    attempt: Attempt
    time: ServiceTime


class AtomicRoute:
    """The way of one network's runs that are like the one before. Thread-safe.

    ``executor`` is where its only stage computes; ``run_ids`` numbers the runs that are of no
    request; ``owner_type`` is the class of those that are.
    """

    def __init__(
        self,
        admission: RunAdmission[Any],
        executor: TaskExecutor,
        process: ProcessMark,
        run_ids: Iterator[int],
        owner_type: type,
    ) -> None:
        self._admission, self._executor = admission, executor
        self._process, self._run_ids, self._owner_type = process, run_ids, owner_type
        self._known: _Known | None = None
        self._count = 0

    def learn(
        self,
        runs: AlikeRuns | None,
        stage: Stage,
        lane: Lane,
        inputs: Mapping[str, Any],
        time: ServiceTime,
    ) -> None:
        """Note what the latest inline run has left; None: nothing, as its like need more."""
        known = self._known
        if runs is None:
            self._known = None
        elif known is None or known.runs is not runs:
            terms = self._terms(stage, lane, inputs)
            self._known = None if terms is None else _Known(runs, runs.attempts(terms), time)

    def forget(self) -> None:
        """Drop what is known, when no run is left and none may come."""
        self._known = None

    def carry(self, inputs: Any, request: Any, turn: InlineTurn) -> AtomicRun | None:
        """Make a run from beginning to end on this thread, and return it; None: nothing was kept.

        The time is put down to ``turn``.
        """
        known = self._known
        if known is None:
            return None
        thread, time = turn.thread, known.time
        if not time.is_brief or thread.is_hopping or thread.is_own:
            return None
        self._count += 1
        if self._count >= SAMPLED:
            self._count = 0
            time.pay(SAMPLED)
            return None
        run = known.attempt(inputs, request)
        if run is not None:
            duration_ns = run.duration_ns
            turn.used_ns += duration_ns
            if duration_ns >= time.far_too_long_ns:
                time.note(duration_ns, is_inline=not turn.may_block)
        return run

    def _terms(self, stage: Stage, lane: Lane, inputs: Mapping[str, Any]) -> AtomicTerms | None:
        admission, lending = self._admission, self._executor.lending_terms()
        if lending is None or callable(stage.part) or not may_be_atomic():
            return None
        notes, counters = admission.arrivals.terms(inputs)
        return AtomicTerms(
            same=((admission, "is_closed", False), (self._process, "is_current", True)),
            calls=(*admission.idle_terms(), *lending),
            owner_type=self._owner_type,
            owner_same=(("_state", "idle"), ("_has_handles", False)),
            owner_lock="_lock",
            owner_run="_run",
            owner_id="id",
            run_ids=self._run_ids,
            ages=ages,
            make_run=AtomicRun,
            place=stage.place,
            lane=lane.name,
            part=stage.part,
            note_latency=admission.note_finished,
            note_span=admission.recorder.keep,
            notes=notes,
            counters=counters,
        )
