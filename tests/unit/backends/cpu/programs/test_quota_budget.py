"""Spending a CPU quota, in virtual time: all of it, and no more."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from aioinfer.backends.cpu.programs.quota_budget import LONGEST_PAUSE, QuotaBudget
from unit.backends.cpu.programs.quota_machine import MS, QuotaMachine

SPEEDUP = 0.85  # of each thread after the first


@dataclass
class Service:
    """Runs of one network, one after the other, as large as the budget says."""

    machine: QuotaMachine
    most: int
    one_ns: int
    think_ns: int = 0
    sizes: list[int] = field(default_factory=list)
    walls_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = QuotaBudget(self.most)
        self.budget.read(self.machine.reading(), 0)

    def work_ns(self, size: int) -> int:
        return round(self.one_ns / (1 + (size - 1) * SPEEDUP))

    def serve(self, period_count: int) -> None:
        """Compute for a number of periods; what was before is forgotten."""
        self.sizes.clear()
        self.walls_ns.clear()
        machine, base = self.machine, max(1, self.machine.quota_ns // self.machine.period_ns)
        until_ns = machine.now_ns + period_count * machine.period_ns
        while machine.now_ns < until_ns:
            if self.think_ns:
                machine.rest(self.think_ns)
                self.budget.read(machine.reading(), 0)
            size = self.budget.size(self.work_ns(self.most), self.work_ns(base), machine.now_ns)
            self.walls_ns.append(machine.run(size, self.work_ns(size)))
            self.budget.read(machine.reading(), size * self.work_ns(size))
            self.sizes.append(size)


@dataclass
class Account:
    """What a machine's group has used, and how often it stood still, since it was made."""

    machine: QuotaMachine

    def __post_init__(self) -> None:
        self._began_ns, self._used_ns = self.machine.now_ns, self.machine.used_ns
        self._throttle_count = self.machine.throttle_count

    @property
    def used_share(self) -> float:
        machine = self.machine
        periods = (machine.now_ns - self._began_ns) / machine.period_ns
        return (machine.used_ns - self._used_ns) / (periods * machine.quota_ns)

    @property
    def throttle_count(self) -> int:
        return self.machine.throttle_count - self._throttle_count


@pytest.mark.parametrize("phase_ms", [13, 99])
@pytest.mark.parametrize("one_ms", [2, 9, 16])
@pytest.mark.parametrize(
    ("quota", "most"), [(1.5, 2), (1.25, 2), (1.75, 2), (2.5, 3), (3.5, 4), (1.5, 4)]
)
def test_long_work_uses_the_quota_and_never_stands_still(
    quota: float, most: int, one_ms: int, phase_ms: int
) -> None:
    machine = QuotaMachine(quota, phase_ns=phase_ms * MS)
    service = Service(machine, most, one_ms * MS)
    service.serve(60)
    account = Account(machine)
    service.serve(60)
    one_run = most * service.work_ns(most) / machine.quota_ns  # which may be too much
    assert account.throttle_count <= 1
    assert account.used_share >= 0.96 - one_run
    assert set(service.sizes) == {int(quota), most}


def test_short_runs_use_95_percent_of_the_quota() -> None:
    machine = QuotaMachine(1.5, phase_ns=37 * MS)
    service = Service(machine, 2, 2 * MS)
    service.serve(30)
    account = Account(machine)
    service.serve(100)
    assert account.used_share >= 0.95
    assert account.throttle_count == 0


@pytest.mark.parametrize("period_ms", [10, 20, 250])
def test_periods_may_have_any_length(period_ms: int) -> None:
    machine = QuotaMachine(1.5, period_ns=period_ms * MS)
    service = Service(machine, 2, period_ms * MS // 50)
    service.serve(60)
    account = Account(machine)
    service.serve(60)
    assert account.throttle_count == 0
    assert account.used_share >= (0.93 if period_ms > 20 else 0.85)  # when is known to 1 ms


def test_before_it_knows_when_periods_begin_the_base_computes() -> None:
    machine = QuotaMachine(2.5)
    service = Service(machine, 3, 5 * MS)
    machine.rest(MS)
    assert service.budget.size(2 * MS, 3 * MS, machine.now_ns) == 2
    assert QuotaBudget(3).size(0, 0, 0) == 1


@pytest.mark.parametrize("one_ms", [60, 80, 110])
def test_runs_that_are_sooner_done_even_with_a_stop_always_have_a_team(one_ms: int) -> None:
    machine = QuotaMachine(1.5, phase_ns=37 * MS)
    service = Service(machine, 2, one_ms * MS)
    service.serve(100)
    assert set(service.sizes) == {2}
    assert max(service.walls_ns) <= one_ms * MS
    assert sum(service.walls_ns) / len(service.walls_ns) <= 0.75 * one_ms * MS


def test_short_runs_do_not_take_a_stop_into_account() -> None:
    machine = QuotaMachine(1.5, phase_ns=37 * MS)
    service = Service(machine, 2, 5 * MS)
    service.serve(60)
    service.serve(60)
    assert max(service.walls_ns) == 5 * MS


@pytest.mark.parametrize("quota", [0.3, 1.0])
def test_a_quota_without_a_part_to_spend_leaves_the_base(quota: float) -> None:
    service = Service(QuotaMachine(quota), 2, 5 * MS)
    service.serve(60)
    assert set(service.sizes) == {1}


def test_a_whole_quota_leaves_the_whole_team() -> None:
    service = Service(QuotaMachine(2.0), 2, 5 * MS)
    service.serve(60)
    assert set(service.sizes) == {2}


def test_occasional_runs_have_a_team() -> None:
    service = Service(QuotaMachine(1.5), 2, 8 * MS, think_ns=30 * MS)
    service.serve(60)
    service.serve(60)
    assert service.sizes.count(2) >= 0.9 * len(service.sizes)


def test_what_others_use_is_left_to_them() -> None:
    machine = QuotaMachine(1.5, others=0.3)
    service = Service(machine, 2, 5 * MS)
    service.serve(60)
    account = Account(machine)
    service.serve(60)
    assert account.throttle_count == 0
    assert account.used_share >= 0.93


def test_it_recovers_after_others_took_the_quota() -> None:
    machine = QuotaMachine(1.5)
    service = Service(machine, 2, 5 * MS)
    service.serve(60)
    machine.others = 0.8
    service.serve(60)
    assert service.sizes.count(2) < len(service.sizes) / 5
    machine.others = 0.0
    service.serve(LONGEST_PAUSE + 10)
    account = Account(machine)
    service.serve(40)
    assert account.used_share >= 0.93
    assert account.throttle_count == 0


def test_a_quota_that_changes_is_followed() -> None:
    machine = QuotaMachine(1.5)
    service = Service(machine, 2, 5 * MS)
    service.serve(60)
    machine.quota_ns = 200 * MS
    service.serve(20)
    assert service.sizes[5:] == [2] * len(service.sizes[5:])
    machine.quota_ns = 120 * MS
    service.serve(60)
    account = Account(machine)
    service.serve(60)
    assert account.throttle_count == 0
    assert account.used_share >= 0.9
    machine.quota_ns = 0
    assert service.budget.read(machine.reading(), 0) is None
    assert service.budget.size(5 * MS, 8 * MS, machine.now_ns) == 2


def test_who_stands_still_by_what_is_not_seen_pauses() -> None:
    machine = QuotaMachine(1.5)
    service = Service(machine, 2, 5 * MS)
    service.serve(60)
    assert 2 in service.sizes
    for _ in range(4):  # the process's own time stands for its group's, and somebody else stops it
        machine.throttled_ns += 40 * MS
        service.serve(1)
    service.serve(2)
    assert set(service.sizes) == {1}
    service.serve(LONGEST_PAUSE)
    service.serve(10)
    assert 2 in service.sizes


def test_two_streams_share_the_quota() -> None:
    machine = QuotaMachine(3.5, phase_ns=21 * MS)
    budgets = [QuotaBudget(2), QuotaBudget(2)]
    ends, sizes, spent = [0, 0], [1, 1], [0, 0]

    def step() -> None:
        """Have both compute until one has ended its run, which then begins another."""
        for stream, budget in enumerate(budgets):
            if ends[stream] <= machine.now_ns:
                budget.read(machine.reading(), spent[stream])
                sizes[stream] = budget.size(3 * MS, 5 * MS, machine.now_ns)
                run_ns = (5 if sizes[stream] == 1 else 3) * MS
                ends[stream], spent[stream] = machine.now_ns + run_ns, sizes[stream] * run_ns
        wait_ns = min(ends) - machine.now_ns
        if machine.run(sum(sizes), wait_ns) > wait_ns:
            ends[:] = [max(end, machine.now_ns) for end in ends]

    until_ns = machine.now_ns + 60 * machine.period_ns
    while machine.now_ns < until_ns:
        step()
    account = Account(machine)
    while machine.now_ns < until_ns + 60 * machine.period_ns:
        step()
    assert account.used_share >= 0.9
    assert account.throttle_count <= 30  # of 60 periods, each for one run at the most
