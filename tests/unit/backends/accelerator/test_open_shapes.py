"""Many shapes in turn: what plans have on the device goes with them, and what is kept is bound."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator.executable_network import AcceleratorNetwork
from aioinfer.runtime.plans.plan_cache import PLAN_COUNT
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import FakeDriver, FakeMemory, FakeProgram
from unit.backends.accelerator.serving import negating, pump

ONE_SLOT = {"PERFORMANCE_HINT_NUM_REQUESTS": 1}
ROW_BYTES = 16
SHAPE_COUNT = PLAN_COUNT + 8


def add_and_double(x: Any, ramp: Any, w: Any, *rest: Any) -> None:
    y, count = rest[-2:]
    rows = x.use().view(np.float32)[:count] + ramp.use().view(np.float32)[:count]
    y.use().view(np.float32)[:count] = (rows.reshape(-1, 4) * w.use().view(np.float32)).reshape(-1)


def ramped() -> Any:
    """Make a model of (x + [0, 1, 2, ...]) * w: a constant for each shape, and one of its own."""
    nodes = [
        operator("Shape", "x", outputs=["shape"]),
        operator("Size", "x", outputs=["count"]),
        operator("Range", "zero", "count", "one", outputs=["range"]),
        operator("Cast", "range", outputs=["floats"], to=1),
        operator("Reshape", "floats", "shape", outputs=["ramp"]),
        operator("Add", "x", "ramp", outputs=["sum"]),
        operator("Mul", "sum", "w"),
    ]
    constants = {
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "w": np.full((1, 4), 2, np.float32),
    }
    return model_of(nodes, {"x": rows_of(1)}, constants=constants, dynamic=True)


def rows_of(count: int) -> np.ndarray:
    return np.full((count, 4), count, np.float32)


def expected(given: np.ndarray) -> np.ndarray:
    return (given + np.arange(given.size, dtype=np.float32).reshape(given.shape)) * 2


@pytest.fixture
def driver() -> FakeDriver:
    made = FakeDriver()
    made.functions["fused"] = add_and_double
    return made


def load(core: Core, config: dict[str, Any] | None = None) -> AcceleratorNetwork:
    network = core.load_network(ramped(), "FAKE", config)
    assert isinstance(network, AcceleratorNetwork)
    return network


def build(network: AcceleratorNetwork, given: np.ndarray) -> None:
    """Have the plan for an input built, and wait for it."""
    built = threading.Event()
    network.shape_plans.request({"x": given}).when_ready(lambda _: built.set())
    assert built.wait(20)


def test_constants_of_shapes_go_with_their_plans_and_those_of_the_model_stay(
    driver: FakeDriver, fake_core: Core
) -> None:
    network = load(fake_core, ONE_SLOT)
    (context,) = driver.contexts
    request, kept = network.create_infer_request(), range(SHAPE_COUNT, 8, -1)
    for _ in range(3):
        for count in range(1, SHAPE_COUNT + 1):
            given = rows_of(count)
            np.testing.assert_array_equal(request.infer_sync(given)["y"], expected(given))
        assert network.get_metric("PLAN_COUNT") == PLAN_COUNT == len(kept)
        assert network.get_metric("WEIGHTS_BYTES") == ROW_BYTES * (1 + sum(kept))
        assert len(context.alive) == 1 + PLAN_COUNT + 2  # and the slot's arena and staging memory
    uploads = [item for item in context.done if item == "setup: write"]
    assert len(uploads) == 1 + 3 * SHAPE_COUNT, "what is the model's own was uploaded once"


def test_a_plan_that_is_dropped_while_it_runs_keeps_its_constants(
    driver: FakeDriver, fake_core: Core
) -> None:
    network, given = load(fake_core, ONE_SLOT), rows_of(3)
    (context,), request = driver.contexts, network.create_infer_request()
    request.infer_sync(given)
    driver.is_eager = False
    request.start_async(given)
    latest = network.shape_plans.plans()[-1]
    plan = weakref.ref(latest)
    del latest
    for count in range(10, 10 + SHAPE_COUNT):  # none of them is run
        build(network, rows_of(count))
    assert plan() not in (None, *network.shape_plans.plans())
    pump(context, request)
    np.testing.assert_array_equal(request.results["y"], expected(given))
    driver.is_eager = True
    request.infer_sync(given)
    assert plan() is None


def test_runs_of_plans_that_are_kept_bind_nothing(
    driver: FakeDriver, fake_core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = load(fake_core, ONE_SLOT)
    request, counted = network.create_infer_request(), Counter[str]()
    shapes = [rows_of(count) for count in range(PLAN_COUNT, 0, -1)]
    for given in shapes:
        request.infer_sync(given)
    for kind, name in ((FakeMemory, "part"), (FakeProgram, "kernel")):
        method = getattr(kind, name)

        def count(self: Any, *given: Any, name: str = name, method: Any = method) -> Any:
            counted[name] += 1
            return method(self, *given)

        monkeypatch.setattr(kind, name, count)
    for given in shapes * 2:
        np.testing.assert_array_equal(request.infer_sync(given)["y"], expected(given))
    assert not counted
    request.infer_sync(rows_of(PLAN_COUNT + 1))
    assert set(counted) == {"part", "kernel"}


def test_slots_let_go_of_plans_that_are_not_kept(driver: FakeDriver, fake_core: Core) -> None:
    network = load(fake_core)
    (context,), largest = driver.contexts, rows_of(PLAN_COUNT + 2)
    request, other = network.create_infer_request(), network.create_infer_request()
    driver.is_eager = False
    for each in (request, other):  # at once, so that each slot has bound the plan
        each.start_async(largest)
    pump(context, request, other)
    driver.is_eager = True
    plan = weakref.ref(network.shape_plans.plans()[0])
    for count in range(1, PLAN_COUNT):
        request.infer_sync(rows_of(count))
    assert plan() is not None
    request.infer_sync(rows_of(PLAN_COUNT))
    assert plan() is None


def test_a_run_of_a_plan_that_is_there_does_not_wait_for_another_networks_compiler(
    driver: FakeDriver, fake_core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, given = load(fake_core), rows_of(3)
    network.create_infer_request().infer_sync(given)  # which binds one of its slots
    other = fake_core.load_network(negating(rows_of(1), dynamic=True), "FAKE")
    (context,) = driver.contexts
    is_building, go_on, make = threading.Event(), threading.Event(), context.program

    def program(source: str) -> FakeProgram:
        is_building.set()
        assert go_on.wait(20)
        return make(source)

    monkeypatch.setattr(context, "program", program)
    parked = other.create_infer_request()
    parked.start_async(given)
    try:
        assert is_building.wait(20)
        driver.is_eager = False
        requests = [network.create_infer_request() for _ in range(2)]
        for request in requests:
            request.start_async(given)
        pump(context, *requests)
        for request in requests:
            np.testing.assert_array_equal(request.results["y"], expected(given))
        assert not parked.wait(0.0)
    finally:
        driver.functions["fused"] = lambda *arguments: None
        driver.is_eager = True
        go_on.set()
    assert parked.wait(20)


def test_kernels_go_with_the_last_network_that_has_them(
    driver: FakeDriver, fake_core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(fake_core)
    first.create_infer_request().infer_sync(rows_of(2))
    (context,), programs = driver.contexts, first.opened.programs
    built, make = [], context.program

    def program(source: str) -> FakeProgram:
        built.append(source)
        return make(source)

    monkeypatch.setattr(context, "program", program)
    second = load(fake_core)
    second.create_infer_request().infer_sync(rows_of(2))
    assert (len(programs), built) == (1, [])
    first.close()
    np.testing.assert_array_equal(
        second.create_infer_request().infer_sync(rows_of(2))["y"], expected(rows_of(2))
    )
    assert (len(programs), built) == (1, [])
    second.close()
    assert len(programs) == 0
