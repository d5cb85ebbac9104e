from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import TOOK_NS, FakeDriver

X = np.arange(12, dtype=np.float32).reshape(3, 4)
LAUNCHES = ["Softmax", "Transpose"]
MODEL = model_of([operator("Softmax", "x", outputs=["s"]), operator("Transpose", "s")], {"x": X})


def compute(*arguments: Any) -> None:
    return


@pytest.fixture
def driver() -> FakeDriver:
    made = FakeDriver()
    made.functions |= {"softmax": compute, "strided_copy": compute, "copy": compute}
    return made


def profiles_and_span(core: Core, device: str) -> tuple[list[Any], Any]:
    with core.load_network(MODEL, device, {"PERF_COUNT": True}) as network:
        request = network.create_infer_request()
        request.infer_sync(X)
        lane = f"{network.device} compute"
        spans = [span for span in network.trace() if span.lane == lane]
        return request.profiling(), spans[0] if spans else None


def test_launches_lie_within_the_span_of_what_the_device_did(fake_core: Core) -> None:
    (first, second), span = profiles_and_span(fake_core, "FAKE")
    assert (first.start_ns, second.end_ns) == (span.started_ns, span.ended_ns)
    assert first.end_ns - first.start_ns == pytest.approx(TOOK_NS, rel=0.01)
    assert first.end_ns <= second.start_ns


def test_a_device_without_times_has_no_profile(driver: FakeDriver, fake_core: Core) -> None:
    driver.untimed.add("compute: launch")
    assert profiles_and_span(fake_core, "FAKE") == ([], None)


def test_launches_of_a_real_device_lie_within_its_span(core: Core) -> None:
    profiles, span = profiles_and_span(core, "OPENCL")
    assert [item.op for item in profiles] == LAUNCHES
    for item in profiles:
        assert span.started_ns <= item.start_ns <= item.end_ns <= span.ended_ns
