"""Programs by stream: each stream binds a plan to its arena, and keeps what it has bound.

A stream computes one run at a time, so all networks whose runs it computes share one arena, as
large as the largest of their plans needs. It is an attribute of the lane, held weakly there, and
goes with the last network that uses it. When it grows it moves, and programs that point into the
old one are bound anew by their next run.

Under a quota the team of a stream may be smaller for single runs (lane_team.py), which then take
the plan for its size, once that has been made.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ....executors import Lane
from ....runtime.plans.plan_cache import PLAN_COUNT
from ..native.extension import start_team
from ..native.step_runner import StepRunner
from ..plans.plan import Form, Plan
from .atomic_runs import ProgramRuns
from .growing_arena import GrowingArena
from .lane_team import LaneTeam
from .program import Program

__all__ = ["LanePrograms"]

Array = np.ndarray[Any, Any]

FORGETTING = 64
"""The part of a team's time that one question takes off."""


def _arena_of(lane: Lane) -> GrowingArena:
    """Return the lane's arena, made by the first network that computes there."""
    known = lane.local.get(GrowingArena)
    arena: GrowingArena | None = None if known is None else known()
    if arena is None:
        arena = GrowingArena()
        lane.local[GrowingArena] = weakref.ref(arena)
    return arena


def _times_ns(programs: Mapping[Plan, Program], plan: Plan) -> tuple[int, int]:
    """Return how long runs take by the whole team, and by the quickest smaller one; 0: not known.

    A team that is found to be too slow has less of a bad name each time, or it would keep it.
    """
    whole = programs.get(plan)
    if whole is None:
        return 0, 0
    resized = list(plan.resized.values())  # other threads add to it
    known = [programs.get(other) for other in resized if other is not None]
    smaller_ns = min([small.run_ns for small in known if small and small.run_ns], default=0)
    if whole.run_ns > smaller_ns // plan.thread_count:  # no team is quicker than that
        whole.run_ns -= whole.run_ns // FORGETTING
    return min(whole.run_ns, smaller_ns or whole.run_ns), smaller_ns


class _OfLane:
    """What one network holds for one stream: a share in arena and team, and bound programs."""

    __slots__ = ("arena", "programs", "team")

    def __init__(self, arena: GrowingArena, team: LaneTeam | None) -> None:
        self.arena, self.team = arena, team
        self.programs: OrderedDict[Plan, Program] = OrderedDict()


class LanePrograms:
    """The programs of one network, the most recently used of each stream.

    ``want_resized`` is asked to have ``plan.resized`` filled for a number of threads, and must not
    block; without it teams keep their size. Programs of others than the ``kept_plans`` are dropped
    when a new one comes. ``program`` is called on the stream's own thread, the
    rest on any.
    """

    def __init__(
        self,
        runner: StepRunner,
        want_resized: Callable[[Plan, int], None] | None = None,
        *,
        kept_plans: Callable[[], Iterable[Plan]] | None = None,
        most_count: int = PLAN_COUNT,
    ) -> None:
        self._runner = runner
        self._want_resized, self._kept_plans = want_resized, kept_plans
        self._capacity = most_count
        self._lock = threading.Lock()
        self._lanes: dict[Lane, _OfLane] = {}

    def program(self, plan: Plan, lane: Lane) -> Program:
        """Return the plan bound to this stream, with its weights packed."""
        held = self._lanes.get(lane)
        if held is None:
            held = self._hold(lane)
        programs, arena, team = held.programs, held.arena, held.team
        if team is not None and plan.thread_count > 1:
            size = team.size_for(*_times_ns(programs, plan))
            if size < plan.thread_count:
                plan = self._resized(plan, size)
        program = programs.get(plan)
        if program is not None and program.arena is arena.memory:
            if len(programs) > 1:
                programs.move_to_end(plan)
            return program
        start_team(plan.thread_count)
        plan.pack()
        is_stale = any(known.arena is not arena.memory for known in programs.values())
        if is_stale or plan.arena_bytes > arena.memory.nbytes:
            programs.clear()  # nothing may keep the old memory
            program = None
        arena.reserve(plan.arena_bytes)
        kept_count = self._drop_unkept(programs, plan)
        alike: Program | None = plan.bound.get(lane)
        if alike is not None and alike.arena is arena.memory:
            program = programs[plan] = alike.named_by(plan)
        else:
            told = team if plan.can_shrink else None
            program = Program(plan, self._runner, arena.memory, told)
            programs[plan] = plan.bound[lane] = program
        while len(programs) > max(self._capacity, kept_count):
            programs.popitem(last=False)
        return program

    def alike_runs(
        self,
        plan: Plan,
        lane: Lane,
        inputs: Mapping[str, Form],
        make_array: Callable[..., Array],
        results: Sequence[tuple[str, int, Callable[[Array], Any] | None]],
        same: tuple[object, str, object],
        counters: tuple[tuple[object, str], ...],
    ) -> ProgramRuns | None:
        """Return what makes runs like one that this plan has had here, with these inputs.

        ``same`` says that the plan is the one to use, ``counters`` that it was: terms of atomic
        runs. None: they take more than a call.
        """
        program = self.program(plan, lane)
        make_calls = program.atomic_calls(inputs, plan.made_forms, results, make_array)
        if make_calls is None:
            return None
        return ProgramRuns(program, make_calls, self._lanes[lane].arena, same, counters)

    def _drop_unkept(self, programs: OrderedDict[Plan, Program], plan: Plan) -> int:
        """Drop programs whose plans the network has dropped; count the plans it keeps."""
        if self._kept_plans is None or not programs:
            return 0
        kept = {*self._kept_plans(), plan}
        for known in list(programs):
            if (known if known.made_of is None else known.made_of()) not in kept:
                del programs[known]
        return len(kept)

    def _hold(self, lane: Lane) -> _OfLane:
        team = None if self._want_resized is None else LaneTeam.of_lane(lane)
        with self._lock:
            held = self._lanes[lane] = _OfLane(_arena_of(lane), team)
        return held

    def _resized(self, plan: Plan, thread_count: int) -> Plan:
        """Return the plan for a smaller team; the plan itself while there is none.

        It is made from weights that the plan has packed, in its first run.
        """
        if thread_count not in plan.resized and plan.is_packed:
            assert self._want_resized is not None
            self._want_resized(plan, thread_count)
        return plan.resized.get(thread_count) or plan

    @property
    def team_sizes(self) -> dict[str, int]:
        """How many threads each stream computes with now, by the stream's name."""
        with self._lock:
            lanes = dict(self._lanes)
        return {
            lane.name: lane.thread_count if held.team is None else held.team.size_now
            for lane, held in lanes.items()
        }

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arenas of all streams that this network has computed on."""
        with self._lock:
            return sum(held.arena.used_bytes for held in self._lanes.values())

    def clear(self) -> None:
        """Drop all programs and lanes; when no run is left."""
        with self._lock:
            self._lanes.clear()
        self._want_resized = None
