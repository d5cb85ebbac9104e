"""On an accelerator every slot is bound before the first request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.memory.slot_memory import SlotMemory
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver
from unit.backends.accelerator.serving import CapturingPlugin, negating

X = np.ones((3, 4), np.float32)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver(replace(FACTS, can_capture=True))


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[SlotMemory]:
    """Note the memories that a plan is bound to."""
    noted: list[SlotMemory] = []
    real = SlotMemory._with_addresses

    def with_addresses(memory: SlotMemory, plan: Any) -> Any:
        noted.append(memory)
        return real(memory, plan)

    monkeypatch.setattr(SlotMemory, "_with_addresses", with_addresses)
    return noted


@pytest.mark.parametrize("by", ["property", "method"])
def test_no_slot_is_bound_by_the_first_requests(
    driver: FakeDriver, fake_core: Core, bound: list[SlotMemory], by: str
) -> None:
    fake_core.register_plugin("CAP", lambda handle, name: CapturingPlugin(handle, name, driver))
    shapes = {"x": X.shape}
    config: dict[str, Any] = {"PERFORMANCE_HINT": "THROUGHPUT"}
    if by == "property":
        config["INPUT_SHAPES"] = shapes
    with fake_core.load_network(negating(X, dynamic=True), "CAP", config) as network:
        if by == "method":
            assert network.warm_up(shapes) == []
        slot_count = network.admission.slot_count
        assert slot_count > 1
        assert len(set(bound)) == len(bound) == slot_count
        assert network.get_metric("CAPTURED_PLAN_COUNT") == slot_count
        requests = [network.create_infer_request() for _ in range(2 * slot_count)]
        for request in requests:
            request.start_async(X)
        assert all(request.wait(20) for request in requests)
        assert len(bound) == slot_count
        assert network.statistics().plans.build_count == 1
