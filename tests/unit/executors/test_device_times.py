from __future__ import annotations

import random

import pytest

from aioinfer.executors import DeviceClock

AHEAD_NS = 5_000_000_000_000


def test_a_reading_is_right_to_half_of_what_it_leaves_open() -> None:
    assert DeviceClock().read(AHEAD_NS + 1000, 900, 1100) == -AHEAD_NS


def test_readings_together_are_sharper_than_each() -> None:
    clock = DeviceClock()
    clock.read(AHEAD_NS + 1000, 1000, 1800)  # nothing passed before the device's moment
    assert clock.read(AHEAD_NS + 2000, 1200, 2000) == -AHEAD_NS  # and here nothing after


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_readings_makes_it_leave_what_all_of_them_allow(seed: int) -> None:
    order, clock = random.Random(seed), DeviceClock()
    for _ in range(50):
        moment_ns = order.randrange(1_000_000)
        reading = moment_ns - order.randrange(5000), moment_ns + order.randrange(5000)
        distance_ns = clock.read(AHEAD_NS + moment_ns, *reading)
        assert abs(distance_ns + AHEAD_NS) <= 2500


def test_a_clock_that_drifts_is_followed() -> None:
    clock = DeviceClock()
    for second in range(1000):
        moment_ns = second * 10**9
        drifted_ns = moment_ns + moment_ns // 20_000
        device_ns = AHEAD_NS + drifted_ns
        distance_ns = clock.read(device_ns, moment_ns - 10, moment_ns + 10)
        assert abs(device_ns + distance_ns - moment_ns) <= 10


def test_a_clock_that_jumps_is_believed() -> None:
    clock = DeviceClock()
    clock.read(AHEAD_NS, -10, 10)
    assert clock.read(100, 90, 110) == 0
