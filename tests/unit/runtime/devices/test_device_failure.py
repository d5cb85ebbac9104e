"""What a failure says of a device: a table."""

from __future__ import annotations

import pytest

from aioinfer.errors import DeviceError, NotSupportedError, TensorError, UnsupportedOpError
from aioinfer.runtime.devices.device_failure import Verdict, verdict_on


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
