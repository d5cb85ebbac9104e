"""Runs whose launches go to the device in portions, and what a stop leaves of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.launching import portions
from aioinfer.backends.accelerator.launching.portions import FIRST_COUNT, PORTION_NS, next_count
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.errors import DeviceError, RequestCancelledError
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import FakeContext, FakeDriver
from unit.backends.accelerator.serving import pump

LAUNCH_COUNT = 3 * FIRST_COUNT + 2
ONE_SLOT = {"PERFORMANCE_HINT_NUM_REQUESTS": 1}
INPUTS = {f"x{index}": np.full(4, index, np.float32) for index in range(LAUNCH_COUNT)}


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver(is_eager=False)


@pytest.fixture
def took_ns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What lies between two looks at the clock, in its last item."""
    found, looks = [PORTION_NS // 2], [0]

    def look() -> int:
        looks.append(looks[-1] + found[-1])
        return looks[-1]

    monkeypatch.setattr(portions, "now_ns", look)
    return found


@pytest.fixture
def request_of(fake_core: Core, took_ns: list[int]) -> Any:
    return fake_core.load_network(many_launches(), "FAKE", ONE_SLOT).create_infer_request()


def many_launches() -> onnx.ModelProto:
    """Make a model of independent nodes, each a launch of its own."""
    outputs = [f"y{name[1:]}" for name in INPUTS]
    nodes = [
        operator("Neg", name, outputs=[output])
        for name, output in zip(INPUTS, outputs, strict=True)
    ]
    made: onnx.ModelProto = model_of(nodes, INPUTS, outputs)
    return made


def enqueued(context: FakeContext) -> int:
    """Count the launches that the device has, and has not done."""
    return [item.label for queue in context.queues for item in queue.commands].count("launch")


def done(context: FakeContext) -> int:
    return context.done.count("compute: launch")


@pytest.mark.parametrize(
    ("launches", "took", "expected"),
    [
        (8, 0, 32),
        (8, PORTION_NS, 8),
        (8, PORTION_NS // 2, 16),
        (8, PORTION_NS * 2, 4),
        (8, PORTION_NS * 1000, 1),
        (1, PORTION_NS * 1000, 1),
        (300, PORTION_NS // 1000, 1200),
    ],
)
def test_a_portion_takes_what_it_may_but_grows_in_steps(
    launches: int, took: int, expected: int
) -> None:
    assert next_count(launches, took) == expected


def test_all_portions_make_a_run(driver: FakeDriver, request_of: Any) -> None:
    request_of.start_async(INPUTS)
    (context,) = driver.contexts
    assert enqueued(context) == FIRST_COUNT
    pump(context, request_of)
    assert done(context) == LAUNCH_COUNT
    for name, array in INPUTS.items():
        np.testing.assert_array_equal(request_of.results[f"y{name[1:]}"], -array)


def test_a_quick_plan_goes_at_once_when_that_is_known(
    driver: FakeDriver, took_ns: list[int], request_of: Any
) -> None:
    took_ns.append(1)
    (context,) = driver.contexts
    request_of.start_async(INPUTS)
    pump(context, request_of)
    request_of.start_async(INPUTS)
    assert enqueued(context) == LAUNCH_COUNT
    took_ns.append(PORTION_NS * 2)
    pump(context, request_of)
    request_of.start_async(INPUTS)
    assert enqueued(context) == LAUNCH_COUNT // 2, "it took twice as long as it may"
    pump(context, request_of)


def test_a_profiled_run_goes_at_once(driver: FakeDriver, fake_core: Core) -> None:
    network = fake_core.load_network(many_launches(), "FAKE", {"PERF_COUNT": True})
    request = network.create_infer_request()
    request.start_async(INPUTS)
    (context,) = driver.contexts
    assert enqueued(context) == LAUNCH_COUNT
    pump(context, request)
    assert len(request.profiling()) == LAUNCH_COUNT


def test_a_run_that_is_stopped_ends_with_its_portion(driver: FakeDriver, request_of: Any) -> None:
    (context,) = driver.contexts
    request_of.start_async(INPUTS)
    request_of.cancel()
    assert enqueued(context) == FIRST_COUNT
    assert not request_of.wait(0.0), "the device still uses its memory"
    with pytest.raises(RequestCancelledError):
        pump(context, request_of)
    assert done(context) == FIRST_COUNT
    request_of.start_async(INPUTS)
    pump(context, request_of)
    assert done(context) == FIRST_COUNT + LAUNCH_COUNT
    np.testing.assert_array_equal(request_of.results["y1"], -INPUTS["x1"])


def test_a_portion_that_fails_fails_its_run_alone(driver: FakeDriver, request_of: Any) -> None:
    (context,) = driver.contexts
    driver.fails["compute: launch"] = DriverError(ErrorKind.OTHER, "a broken kernel")
    request_of.start_async(INPUTS)
    with pytest.raises(DeviceError, match="a broken kernel"):
        pump(context, request_of)
    request_of.start_async(INPUTS)
    pump(context, request_of)
    np.testing.assert_array_equal(request_of.results["y1"], -INPUTS["x1"])
