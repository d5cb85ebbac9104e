"""When a device that has failed is tried again."""

from __future__ import annotations

from aioinfer.backends.multi.health import LONGEST_S, Health
from aioinfer.errors import DeviceError


def test_it_is_tried_half_as_often_each_time_until_it_has_served() -> None:
    health, error = Health(), DeviceError("lost")
    delays_s = [health.failed(error) for _ in range(40)]
    assert delays_s[:3] == [0.1, 0.2, 0.4]
    assert delays_s[-1] == LONGEST_S
    health.served()
    assert health.failed(error) == 0.1
    assert health.failure_count == 41


def test_it_says_how_it_has_failed_last() -> None:
    health = Health()
    health.failed(DeviceError("lost"))
    health.served()
    assert health.why == "lost"
    health.failed(ValueError())
    assert health.why == "ValueError()"
