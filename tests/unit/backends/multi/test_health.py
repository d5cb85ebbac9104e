"""What a failure says of a device: a table."""

from __future__ import annotations

import pytest

from aioinfer.backends.multi.health import LONGEST_S, Health, Verdict, verdict_on
from aioinfer.errors import DeviceError, NotSupportedError, TensorError, UnsupportedOpError


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (DeviceError("lost"), Verdict.OUT),
        (DeviceError("full", resource="memory"), Verdict.ELSEWHERE),
        (NotSupportedError("not these shapes"), Verdict.ELSEWHERE),
        (UnsupportedOpError("n", "Relu", "CPU", "odd"), Verdict.ELSEWHERE),
        (TensorError("wrong"), Verdict.TELL),
        (ValueError("somebody's own"), Verdict.TELL),
        (KeyboardInterrupt(), Verdict.TELL),
    ],
)
def test_who_is_at_fault(error: BaseException, verdict: Verdict) -> None:
    assert verdict_on(error) is verdict


def test_it_is_tried_half_as_often_each_time_until_it_has_served() -> None:
    health, error = Health(), DeviceError("lost")
    delays_s = [health.failed(error) for _ in range(40)]
    assert delays_s[:3] == [0.1, 0.2, 0.4]
    assert delays_s[-1] == LONGEST_S
    health.served()
    assert health.failed(error) == 0.1
    assert health.failure_count == 41
