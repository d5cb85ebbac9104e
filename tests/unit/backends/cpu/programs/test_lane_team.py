"""Teams of streams under a quota: smaller for runs that it would not last for."""

from __future__ import annotations

import gc
import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.native.step_runner import step_runner
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.plans.plan import Plan
from aioinfer.backends.cpu.programs import lane_programs, lane_team, quota_budget
from aioinfer.backends.cpu.programs.lane_programs import LanePrograms
from aioinfer.backends.cpu.programs.lane_team import READ_NS, LaneTeam
from aioinfer.backends.cpu.programs.resized_plan import resized_plan
from aioinfer.executors import NOW, Lane, QuotaReading
from unit.backends.cpu.comparing import model_of
from unit.backends.cpu.compiled_plans import compiler_of

MS = 1_000_000
WIDTH = 160
WEIGHTS = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32)
X = np.random.default_rng(2).standard_normal((WIDTH, WIDTH)).astype(np.float32)


class Machine:
    """What time it is."""

    def __init__(self) -> None:
        self.now_ns = 0


class Meter:
    """A group's account: as much is used as runs are told to the team, unless it is said."""

    def __init__(self, machine: Machine, quota: float) -> None:
        self._machine = machine
        self.quota_ns = round(quota * 100 * MS)
        self.used_ns = self.throttled_ns = self.read_count = 0
        self.is_readable = True

    def reading(self) -> QuotaReading | None:
        self.read_count += 1
        if not self.is_readable:
            return None
        now_ns = self._machine.now_ns
        periods = now_ns // (100 * MS)
        return QuotaReading(
            now_ns, periods, self.used_ns, self.throttled_ns, self.quota_ns, 100 * MS
        )


def metered(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, quota: float, threads: int = 2
) -> tuple[LaneTeam, Meter]:
    meter = Meter(machine, quota)
    monkeypatch.setattr(lane_team.QuotaMeter, "open", lambda: meter)
    team = LaneTeam.of_lane(Lane("cpu", 0, threads))
    assert team is not None
    return team, meter


def run_by_quota(team: LaneTeam, machine: Machine, meter: Meter) -> int:
    """Have one run compute that takes 8 ms by one thread, or 5 ms by two."""
    size = team.size_for(5 * MS, 8 * MS)
    wall_ns = (5 if size > 1 else 8) * MS
    machine.now_ns += wall_ns
    meter.used_ns += size * wall_ns
    team.ran(size, wall_ns)
    return size


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(lane_team, "time", SimpleNamespace(monotonic_ns=lambda: made.now_ns))
    return made


def test_a_team_computes_while_the_quota_lasts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, meter = metered(monkeypatch, machine, 1.5)
    for _ in range(100):
        run_by_quota(team, machine, meter)
    began_ns, used_ns = machine.now_ns, meter.used_ns
    sizes = [run_by_quota(team, machine, meter) for _ in range(200)]
    assert set(sizes) == {1, 2}
    assert team.size_now == sizes[-1]
    assert 1.35 < (meter.used_ns - used_ns) / (machine.now_ns - began_ns) <= 1.5


def test_short_runs_seldom_read_the_account(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, meter = metered(monkeypatch, machine, 1.5)
    for _ in range(1000):
        team.size_for(10_000, 10_000)
        machine.now_ns += 10_000
        team.ran(2, 10_000)
    assert meter.read_count <= 1 + 1000 * 10_000 // READ_NS


def test_an_account_that_was_never_read_leaves_one_thread(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, meter = metered(monkeypatch, machine, 1.5)
    meter.is_readable = False
    assert {run_by_quota(team, machine, meter) for _ in range(50)} == {1}


def test_a_stream_has_one_team_and_it_goes_with_its_networks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter(machine, 1.5)
    monkeypatch.setattr(lane_team.QuotaMeter, "open", lambda: meter)
    lane = Lane("cpu", 0, 2)
    team = LaneTeam.of_lane(lane)
    assert team is not None
    assert LaneTeam.of_lane(lane) is team
    alive = weakref.ref(team)
    del team
    gc.collect()
    assert alive() is None
    assert LaneTeam.of_lane(lane) is not None


def test_without_a_quota_or_a_second_thread_there_is_nothing_to_choose(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter(machine, 1.5)
    monkeypatch.setattr(lane_team.QuotaMeter, "open", lambda: meter)
    assert LaneTeam.of_lane(Lane("cpu", 0, 1)) is None
    monkeypatch.setattr(lane_team.QuotaMeter, "open", lambda: None)
    assert LaneTeam.of_lane(Lane("cpu", 0, 2)) is None


def bound(core: Core) -> tuple[Any, LanePrograms, list[tuple[Any, int]]]:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
    model = model_of(nodes, {"x": X}, constants={"w": WEIGHTS / WIDTH})
    compiler = compiler_of(core, model, threads=2)
    plan = compiler.compile({"x": X.shape}, {})
    asked: list[tuple[Any, int]] = []

    def want(plan: Any, thread_count: int) -> None:
        asked.append((plan, thread_count))
        plan.resized[thread_count] = resized_plan(plan, thread_count, compiler.weights)

    return plan, LanePrograms(step_runner(open_engine()), want), asked


def compute(program: Any) -> np.ndarray:
    output = np.empty_like(X)
    program.run((X, output))
    return output


def test_under_a_quota_runs_take_the_plan_for_what_it_allows(
    core: Core, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, programs, asked = bound(core)
    lane = Lane("cpu", 0, 2)
    team, meter = metered(monkeypatch, machine, 1.5)
    lane.local[LaneTeam] = weakref.ref(team)
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "is_packed", False)
        first = programs.program(plan, lane)
        assert first.plan is plan  # a smaller plan is made from packed weights
        assert asked == []
    answer = compute(first)
    small = programs.program(plan, lane)
    assert (small.plan.thread_count, programs.team_sizes) == (1, {"cpu": 1})
    assert asked == [(plan, 1)]
    np.testing.assert_allclose(compute(small), answer, rtol=1e-5)
    assert first.run_ns > 0
    assert small.run_ns > 0
    meter.quota_ns = 0
    machine.now_ns += READ_NS
    assert programs.program(plan, lane) is first


def test_a_team_that_had_a_bad_day_is_tried_again(
    core: Core, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, programs, _ = bound(core)
    lane = Lane("cpu", 0, 2)
    team, _ = metered(monkeypatch, machine, 1.5)
    lane.local[LaneTeam] = weakref.ref(team)
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "is_packed", False)
        whole = programs.program(plan, lane)
    small = programs.program(plan, lane)
    whole.run_ns, small.run_ns = 900 * MS, 80 * MS
    seen: list[tuple[int, int]] = []

    def size_for(_self: LaneTeam, run_ns: int, base_ns: int) -> int:
        seen.append((run_ns, base_ns))
        return 1

    monkeypatch.setattr(LaneTeam, "size_for", size_for)
    for _ in range(500):
        programs.program(plan, lane)
    assert seen[0] == (80 * MS, 80 * MS)  # no slower than one thread
    assert seen[-1] == (pytest.approx(40 * MS, rel=0.05), 80 * MS)  # nor twice as quick


def test_while_the_smaller_plan_is_made_runs_go_on(
    core: Core, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, _, _ = bound(core)
    asked = []

    def want(plan: Any, thread_count: int) -> None:
        asked.append(thread_count)
        plan.resized[thread_count] = None

    team, _ = metered(monkeypatch, machine, 1.5)
    monkeypatch.setattr(LaneTeam, "size_for", lambda *facts: 2)
    programs, lane = LanePrograms(step_runner(open_engine()), want), Lane("cpu", 0, 2)
    lane.local[LaneTeam] = weakref.ref(team)
    whole = programs.program(plan, lane)
    monkeypatch.setattr(LaneTeam, "size_for", lambda *facts: 1)
    assert programs.program(plan, lane) is whole
    assert programs.program(plan, lane) is whole
    assert asked == [1]


def test_runs_under_a_quota_are_measured(
    core: Core, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, programs, _ = bound(core)
    lane = Lane("cpu", 0, 2)
    seen = []
    team, _ = metered(monkeypatch, machine, 1.5)
    lane.local[LaneTeam] = weakref.ref(team)
    monkeypatch.setattr(LaneTeam, "size_for", lambda *facts: 2)
    program = programs.program(plan, lane)
    program._team = SimpleNamespace(ran=lambda *facts: seen.append(facts))  # type: ignore[assignment]
    began = time.perf_counter_ns()
    compute(program)
    ((size, caller_ns),) = seen
    assert size == 2
    assert 0 < caller_ns <= time.perf_counter_ns() - began + 10 * MS  # the clocks tick differently


def test_streams_of_one_thread_and_small_plans_are_not_measured(core: Core) -> None:
    plan, programs, _ = bound(core)
    assert programs.program(plan, Lane("one", 0, 1))._team is None
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    small = compiler_of(core, model_of(nodes, {"x": X}), threads=2).compile({"x": X.shape}, {})
    assert small.thread_count == 1
    assert programs.program(small, Lane("two", 0, 2))._team is None


MODEL = [helper.make_node("MatMul", ["x", "w"], ["y"])]


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_a_network_shrinks_its_team_if_it_may(
    core: Core, machine: Machine, monkeypatch: pytest.MonkeyPatch, is_adaptive: bool
) -> None:
    config = {"CPU_ADAPTIVE_TEAMS": is_adaptive, "INFERENCE_NUM_THREADS": 2}
    model = model_of(MODEL, {"x": X}, constants={"w": WEIGHTS})
    meter = Meter(machine, 1.5)
    monkeypatch.setattr(lane_team.QuotaMeter, "open", lambda: meter)
    size = 2
    monkeypatch.setattr(quota_budget.QuotaBudget, "size", lambda *facts: size)
    with core.load_network(model, "CPU", config) as network:
        request = network.create_infer_request()
        answer = request.infer_sync(X)["y"]
        (name,) = network.get_metric("TEAM_SIZES")
        assert network.get_metric("TEAM_SIZES") == {name: 2}
        size = 1
        request.infer_sync(X)  # has the smaller plan made
        network._resize_executor.run_and_wait([lambda lane: NOW])
        np.testing.assert_allclose(request.infer_sync(X)["y"], answer, rtol=1e-4, atol=1e-4)
        assert network.get_metric("TEAM_SIZES") == {name: 1 if is_adaptive else 2}
        assert (1 in network.only_plan.resized) is is_adaptive


def test_results_of_teams_of_a_fixed_size_are_the_same_bits(core: Core) -> None:
    config = {"CPU_ADAPTIVE_TEAMS": False}
    model = model_of(MODEL, {"x": X}, constants={"w": WEIGHTS})
    with core.load_network(model, "CPU", config) as network:
        request = network.create_infer_request()
        first = request.infer_sync(X)["y"]
        assert all(np.array_equal(first, request.infer_sync(X)["y"]) for _ in range(20))


@pytest.mark.parametrize("error", [OSError, MemoryError])
def test_a_run_is_none_the_worse_for_an_account_that_cannot_be_read(
    error: type[Exception], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    team, meter = metered(monkeypatch, machine, 1.5)
    for _ in range(100):
        run_by_quota(team, machine, meter)

    def fail() -> QuotaReading | None:
        raise error

    monkeypatch.setattr(meter, "reading", fail)
    assert [run_by_quota(team, machine, meter) for _ in range(50)][1:] == [1] * 49


def test_programs_are_asked_while_another_thread_adds_a_size() -> None:
    class Adding(dict[Any, Any]):
        def get(self, plan: Any, default: Any = None) -> Any:
            whole.resized[len(whole.resized) + 10] = None
            return super().get(plan, default)

    class Keyed(SimpleNamespace):
        __hash__ = object.__hash__

    whole: Any = Keyed(thread_count=2, resized={1: "small", 2: "other"})
    programs = Adding({"small": SimpleNamespace(run_ns=7), whole: SimpleNamespace(run_ns=5)})
    assert lane_programs._times_ns(programs, whole) == (5, 7)
