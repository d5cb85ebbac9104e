"""Which device gets which request: a pure decision, tried by hand, at random, and in virtual time.

The simulation is the device: it knows how long a run takes, and tells the balancer when it ended.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioinfer.backends.multi.balance import (
    PASSED_OVER,
    Balancer,
    DeviceLoad,
    ServiceTime,
)
from aioinfer.runtime.runs.admission import MOST_OVERTAKINGS, Ticket

_ages = itertools.count(1)


@dataclass(eq=False)
class Request:
    ticket: Ticket
    arrived_s: float = 0.0


def request(priority: int = 0, arrived_s: float = 0.0) -> Request:
    return Request((-priority, next(_ages)), arrived_s)


def device(name: str, mean_s: float | None, place_count: int = 1) -> DeviceLoad:
    made = DeviceLoad(name, place_count)
    if mean_s is not None:
        made.service.note(mean_s)
    return made


def taken(balancer: Balancer[Request], now_s: float = 0.0) -> list[str]:
    """Have the balancer say where requests go, until it holds the rest."""
    names = []
    while (picked := balancer.take(now_s)) is not None:
        names.append(picked[1].name)
    return names


def with_waiting(balancer: Balancer[Request], count: int) -> Balancer[Request]:
    for _ in range(count):
        balancer.add(request())
    return balancer


def test_outliers_count_for_nothing() -> None:
    time = ServiceTime()
    assert time.mean_s is None
    for taken_s in (60.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 500.0):
        time.note(taken_s)
    assert time.mean_s == 1.0


def test_runs_that_have_waited_for_the_first_one_tell_nothing_of_the_speed() -> None:
    only = device("A", None, 3)
    balancer = Balancer([only])
    runs = [request() for _ in range(4)]
    for run in runs[:3]:
        balancer.give(run, only, 0.0)
    for run in runs[:3]:
        balancer.ended(run, only, 60.0, is_well=True)
    assert only.service.mean_s is None
    balancer.give(runs[3], only, 60.0)
    balancer.ended(runs[3], only, 61.0, is_well=True)
    assert only.service.mean_s == 1.0


def test_the_mean_follows_a_change() -> None:
    time = ServiceTime()
    for taken_s in [1.0] * 20 + [3.0] * 20:
        time.note(taken_s)
    assert time.mean_s == 3.0


def test_each_new_device_gets_one_request_first() -> None:
    balancer = with_waiting(Balancer([device("A", None, 2), device("B", None, 2)]), 3)
    assert taken(balancer) == ["A", "B", "A"]


def test_a_new_device_is_measured_beside_one_that_is_known() -> None:
    balancer = with_waiting(Balancer([device("A", 1.0, 2), device("B", None, 4)]), 4)
    assert taken(balancer) == ["B", "A", "A"]


def test_requests_wait_for_the_device_that_ends_them_first() -> None:
    fast, slow = device("fast", 1.0), device("slow", 3.5)
    assert taken(with_waiting(Balancer([slow, fast]), 3)) == ["fast"]


def test_the_one_that_would_end_last_goes_to_the_slow_device() -> None:
    fast, slow = device("fast", 1.0), device("slow", 3.5)
    balancer = Balancer([fast, slow])
    requests = [request() for _ in range(5)]
    for waiting in requests:
        balancer.add(waiting)
    assert balancer.take(0.0) == (requests[0], fast)
    assert balancer.take(0.0) == (requests[3], slow), "two are done by fast until 3.0"
    assert balancer.take(0.0) is None


def test_those_behind_count_for_the_choice() -> None:
    fast, slow = device("fast", 1.0), device("slow", 3.5)
    balancer = with_waiting(Balancer([fast, slow]), 2)
    assert balancer.take(0.0, 9) is not None
    picked = balancer.take(0.0, 9)
    assert picked is not None
    assert picked[1] is slow


def test_an_equal_device_that_is_idle_is_not_passed_over() -> None:
    balancer = with_waiting(Balancer([device("A", 1.0), device("B", 1.0)]), 2)
    assert taken(balancer) == ["A", "B"]


def test_what_is_overdue_is_not_waited_for() -> None:
    fast, slow = device("fast", 1.0), device("slow", 3.5)
    balancer = with_waiting(Balancer([fast, slow]), 2)
    assert taken(balancer) == ["fast"]
    assert balancer.look_again_s(0.0) == 3.5
    assert taken(balancer, 3.6) == ["slow"]
    assert balancer.look_again_s(3.6) is None


def test_a_device_that_nobody_used_for_long_is_measured_again() -> None:
    fast, slow = device("fast", 1.0, 4), device("slow", 9.0)
    balancer = Balancer([fast, slow])
    for now_s in range(PASSED_OVER):
        balancer.add(request())
        picked = balancer.take(float(now_s))
        assert picked is not None
        assert picked[1] is fast
        balancer.ended(picked[0], fast, now_s + 1.0, is_well=True)
    balancer.add(request())
    picked = balancer.take(600.0)
    assert picked is not None
    assert picked[1] is slow
    balancer.add(request())
    assert taken(balancer, 600.0) == ["fast"]
    slow.warm_since_s = 0.0
    balancer.ended(picked[0], slow, 602.0, is_well=True)
    assert slow.service.mean_s == 2.0, "what was known before is forgotten"


def test_a_device_that_is_out_gets_nothing_unless_all_are() -> None:
    first, second = device("A", 1.0), device("B", 9.0)
    balancer = Balancer([first, second])
    first.is_out = True
    assert taken(with_waiting(balancer, 2)) == ["B"]
    second.is_out = True
    assert taken(balancer) == ["A"]
    assert balancer.elsewhere([first]) is second
    assert balancer.elsewhere([first, second]) is None


def test_what_has_failed_goes_where_the_earliest_end_is_expected() -> None:
    failed, busy, idle = device("A", 1.0), device("B", 1.0), device("C", 1.5)
    balancer: Balancer[Request] = Balancer([failed, busy, idle])
    assert balancer.elsewhere([failed]) is busy
    balancer.give(request(), busy, 0.0)
    assert balancer.elsewhere([failed]) is idle


def test_priorities_and_the_order_of_arrival_decide_who_is_next() -> None:
    balancer = Balancer([device("A", 1.0)], "DEVICE_PRIORITY")
    low, high = request(), request(priority=1)
    balancer.add(low)
    balancer.add(high)
    assert balancer.drop(high)
    assert not balancer.drop(high)
    balancer.add(high)
    picked = balancer.take(0.0)
    assert picked is not None
    assert picked[0] is high


def test_nobody_is_left_behind_for_ever() -> None:
    only = device("A", 1.0)
    balancer = Balancer([only])
    old = request()
    balancer.add(old)
    for now_s in range(MOST_OVERTAKINGS + 1):
        balancer.add(request(priority=1))
        picked = balancer.take(float(now_s))
        assert picked is not None
        assert (picked[0] is old) == (now_s == MOST_OVERTAKINGS)
        balancer.ended(picked[0], only, now_s + 1.0, is_well=True)


@given(
    means=st.lists(st.sampled_from([1.0, 1.5, 2.0, 3.5, 7.0]), min_size=1, max_size=4),
    places=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    busy=st.lists(st.floats(0.0, 0.9), max_size=6),
    count=st.integers(0, 20),
)
def test_it_is_what_giving_each_in_turn_to_the_earliest_end_would_give(
    means: list[float], places: list[int], busy: list[float], count: int
) -> None:
    loads = [device(str(index), mean, places[index]) for index, mean in enumerate(means)]
    balancer: Balancer[Request] = Balancer(loads)
    for index, share in enumerate(busy):
        load = loads[index % len(loads)]
        if load.has_room:
            assert load.service.mean_s is not None
            balancer.give(request(), load, -share * load.service.mean_s)
    wanted = sorted(greedily(loads, count))
    assert sorted(taken(with_waiting(balancer, count))) == wanted


def greedily(loads: Sequence[DeviceLoad], count: int) -> list[str]:
    """Simulate all that wait, one by one; names the devices that get one at once."""
    free: list[tuple[float, int, float, DeviceLoad]] = []
    numbers = itertools.count()
    for load in loads:
        mean_s = load.service.mean_s or 0.0
        ends = [started_s + mean_s for started_s in load.started.values()]
        ends += [0.0] * (load.place_count - len(ends))
        # An idle place wins a tie: what it promises is certain.
        free += [(end_s + mean_s, next(numbers) if end_s else -1, end_s, load) for end_s in ends]
    now = []
    entries = [(end_s, tie, number, at_s, load) for number, (end_s, tie, at_s, load)
               in enumerate(free)]  # fmt: skip
    heapq.heapify(entries)
    for _ in range(count):
        end_s, _, number, at_s, load = heapq.heappop(entries)
        if at_s == 0.0:
            now.append(load.name)
        entry = (end_s + (load.service.mean_s or 0.0), 1_000, number, end_s, load)
        heapq.heappush(entries, entry)
    return now


@dataclass
class Simulated:
    """A device of the simulation; ``mean_s`` is what runs take there, more or less."""

    load: DeviceLoad
    mean_s: float


def simulate(devices: Sequence[Simulated], arrivals_s: Sequence[float], seed: int) -> list[float]:
    """Run all requests in virtual time, and return how long each took."""
    chance = random.Random(seed)
    by_load = {simulated.load: simulated for simulated in devices}
    balancer: Balancer[Request] = Balancer([simulated.load for simulated in devices])
    order = itertools.count()
    events: list[tuple[float, int, Request | None, DeviceLoad | None]] = [
        (at_s, next(order), request(arrived_s=at_s), None) for at_s in arrivals_s
    ]
    heapq.heapify(events)
    latencies = []
    while events:
        now_s, _, run, load = heapq.heappop(events)
        if load is not None:
            assert run is not None
            balancer.ended(run, load, now_s, is_well=True)
            latencies.append(now_s - run.arrived_s)
        elif run is not None:
            balancer.add(run)
        while (picked := balancer.take(now_s)) is not None:
            taken_s = by_load[picked[1]].mean_s * chance.uniform(0.8, 1.2)
            heapq.heappush(events, (now_s + taken_s, next(order), *picked))
        again_s = balancer.look_again_s(now_s)
        if again_s is not None:
            heapq.heappush(events, (again_s, next(order), None, None))
    assert len(latencies) == len(arrivals_s)
    assert not balancer.waiting_count
    return latencies


def p99(latencies: list[float]) -> float:
    return sorted(latencies)[math.ceil(0.99 * len(latencies)) - 1]


def arrivals(rate: float, count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return list(itertools.accumulate(chance.expovariate(rate) for _ in range(count)))


@pytest.mark.parametrize("load_share", [0.3, 0.7, 0.95, 1.3])
@pytest.mark.parametrize("slowness", [2.0, 10.0, 100.0])
def test_a_slow_device_never_makes_p99_worse_by_more_than_one_of_its_service_times(
    slowness: float, load_share: float
) -> None:
    for seed in range(3):
        times_s = arrivals(2 * load_share, 3000, seed)
        alone = [Simulated(DeviceLoad("fast", 2), 1.0)]
        with_slow = [
            Simulated(DeviceLoad("slow", 1), slowness),
            Simulated(DeviceLoad("fast", 2), 1.0),
        ]
        without_s = p99(simulate(alone, times_s, seed))
        with_s = p99(simulate(with_slow, times_s, seed))
        assert with_s <= without_s + slowness
        if slowness == 100.0:
            assert with_s <= 1.3 * without_s, "it hardly ever gets a request"


def test_all_devices_together_serve_what_one_could_not() -> None:
    devices = [Simulated(DeviceLoad(str(index), 1), 1.0 + index) for index in range(3)]
    rate = sum(1 / simulated.mean_s for simulated in devices)
    latencies = simulate(devices, arrivals(0.9 * rate, 5000, 1), 1)
    assert p99(latencies) < 30.0
