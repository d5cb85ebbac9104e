"""Results on their way to the host: straight on a processor, by staging memory elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioinfer import Core, ExecutableNetwork
from aioinfer.backends.accelerator.queues.driver import Context, DeviceFacts, DriverError, ErrorKind
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.backends.opencl.pyopencl_driver import PyOpenClDriver
from aioinfer.errors import DeviceError, TensorError
from unit.backends.accelerator.comparing import model_of, operator
from unit.backends.accelerator.fake_driver import (
    FACTS,
    FakeContext,
    FakeDriver,
    FakeMemory,
    FakeQueue,
)
from unit.backends.accelerator.serving import negating, pump

pytestmark = pytest.mark.usefixtures("hands_copies_over")

SMALL, LARGE = (3, 4), (130, 130)
"""Shapes of float32: less and more than 64 KB."""
ACCELERATORS = ("integrated", "discrete")


@pytest.fixture
def kind() -> str:
    return "discrete"


@pytest.fixture
def driver(kind: Any) -> FakeDriver:
    return FakeDriver(replace(FACTS, kind=kind))


@pytest.fixture
def read_targets(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Collect the host memory that the device is told to write."""
    targets, read = [], FakeQueue.read

    def noted(queue: FakeQueue, target: np.ndarray, source: FakeMemory) -> Any:
        targets.append(target)
        return read(queue, target, source)

    monkeypatch.setattr(FakeQueue, "read", noted)
    return targets


def load(core: Core) -> ExecutableNetwork:
    return core.load_network(negating(drawn(SMALL), dynamic=True), "FAKE")


def drawn(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def is_staging(context: FakeContext, array: np.ndarray) -> bool:
    return any(np.shares_memory(array, memory.array) for memory in context.host_memories)


def lanes_of(network: ExecutableNetwork, stage: str) -> set[str]:
    lanes = {span.lane for span in network.trace() if span.stage == stage}
    return {lane.rsplit(".", 1)[0] if "copies" in lane else lane for lane in lanes}


@pytest.mark.parametrize("shape", [SMALL, LARGE])
@pytest.mark.parametrize("kind", ACCELERATORS)
def test_an_accelerator_writes_staging_memory_alone(
    shape: tuple[int, ...], driver: FakeDriver, fake_core: Core, read_targets: list[np.ndarray]
) -> None:
    with load(fake_core) as network:
        mine = np.zeros(shape, np.float32)
        request, given = network.create_infer_request(), drawn(shape)
        first = request.infer_sync(given)["y"]
        request.set_tensor("y", mine)
        request.infer_sync(2 * given)
        (context,) = driver.contexts
        assert [is_staging(context, target) for target in read_targets] == [True, True]
        assert not is_staging(context, first)
        assert request.results["y"] is mine
        np.testing.assert_array_equal(first, -given)
        np.testing.assert_array_equal(mine, -2 * given)


@pytest.mark.parametrize("kind", ["cpu"])
def test_a_processor_writes_results_where_they_belong(
    driver: FakeDriver, fake_core: Core, read_targets: list[np.ndarray]
) -> None:
    with load(fake_core) as network:
        request, given = network.create_infer_request(), drawn(SMALL)
        result = request.infer_sync(given)["y"]
        (target,) = read_targets
        assert np.shares_memory(target, result)
        np.testing.assert_array_equal(result, -given)
        assert "deliver" not in {span.stage for span in network.trace()}


def test_much_is_copied_on_the_executor_of_copies_and_little_at_once(
    driver: FakeDriver, fake_core: Core
) -> None:
    with load(fake_core) as network:
        request = network.create_infer_request()
        request.infer_sync(drawn(SMALL))
        assert lanes_of(network, "deliver") == {"inline"}
        request.infer_sync(drawn(LARGE))
        assert lanes_of(network, "deliver") == {"inline", "FAKE.0 copies"}


def test_memory_that_is_slow_to_write_is_filled_on_the_executor_of_copies(
    driver: FakeDriver, fake_core: Core
) -> None:
    with load(fake_core) as network:
        request, shape = network.create_infer_request(), (64, 65)
        for order, wanted in (("C", {"inline"}), ("F", {"inline", "FAKE.0 copies"})):
            mine = np.zeros(shape, np.float32, order)
            request.set_tensor("y", mine)
            request.infer_sync(drawn(shape))
            np.testing.assert_array_equal(mine, -drawn(shape))
            assert lanes_of(network, "deliver") == wanted


@pytest.mark.parametrize("shape", [SMALL, LARGE])
@pytest.mark.parametrize("seed", range(5))
def test_runs_that_share_a_slot_do_not_see_each_others_results(
    seed: int, shape: tuple[int, ...], driver: FakeDriver, fake_core: Core
) -> None:
    driver.is_eager = False
    with load(fake_core) as network:
        requests = [network.create_infer_request() for _ in range(6)]
        for number, request in enumerate(requests):
            request.start_async(drawn(shape) + number)
        pump(driver.contexts[0], *requests, seed=seed)
        for number, request in enumerate(requests):
            np.testing.assert_array_equal(request.results["y"], -(drawn(shape) + number))


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_bound_memory_in_any_order_is_filled_and_other_shapes_are_refused(
    shape: tuple[int, ...], fake_core: Core
) -> None:
    with load(fake_core) as network:
        request, memory = network.create_infer_request(), np.zeros(shape[::-1], np.float32).T
        request.set_tensor("y", memory)
        request.infer_sync(drawn(shape))
        np.testing.assert_array_equal(memory, -drawn(shape))
        with pytest.raises(TensorError, match="bind one that fits"):
            request.infer_sync(drawn((shape[0] + 1, shape[1])))


def test_a_read_that_fails_delivers_nothing(driver: FakeDriver, fake_core: Core) -> None:
    with load(fake_core) as network:
        request, mine = network.create_infer_request(), np.full(SMALL, 7, np.float32)
        request.set_tensor("y", mine)
        driver.fails["download: read"] = DriverError(ErrorKind.OTHER, "it broke")
        with pytest.raises(DeviceError, match="it broke"):
            request.infer_sync(drawn(SMALL))
        assert (mine == 7).all()
        request.infer_sync(drawn(SMALL))
        np.testing.assert_array_equal(mine, -drawn(SMALL))


def test_a_result_without_elements_is_not_read(
    fake_core: Core, read_targets: list[np.ndarray]
) -> None:
    with load(fake_core) as network:
        result = network.create_infer_request().infer_sync(drawn((0, 4)))["y"]
    assert (result.shape, result.dtype, read_targets) == ((0, 4), np.float32, [])


class OtherKind:
    """The real driver, whose devices say that they are accelerators."""

    def __init__(self) -> None:
        self._driver = PyOpenClDriver()

    def find_devices(self) -> list[DeviceFacts]:
        return [replace(facts, kind="discrete") for facts in self._driver.find_devices()]

    def open(self, facts: DeviceFacts) -> Context:
        return self._driver.open(facts)


def test_real_queues_download_by_staging_memory(core: Core) -> None:
    nodes = [
        operator("Softmax", "x", outputs=["s"]),
        operator("Split", "s", outputs=["y", "z"], num_outputs=2),
    ]
    model = model_of(nodes, {"x": drawn(LARGE)}, ["y", "z", "s"], dynamic=True)
    given = [drawn((rows, 200)) for rows in (3, 300, 1, 17, 128, 300, 3)]
    with core.load_network(model, "REFERENCE") as reference:
        wanted = [reference.create_infer_request().infer_sync(item) for item in given]
    with Core() as mine:
        mine.register_plugin("STAGED", lambda handle, name: OpenClPlugin(handle, name, OtherKind()))
        network = mine.load_network(model, "STAGED", {"PERFORMANCE_HINT": "THROUGHPUT"})
        for _ in range(3):
            requests = [network.create_infer_request() for _ in given]
            for request, item in zip(requests, given, strict=True):
                request.start_async(item)
            for request, expected in zip(requests, wanted, strict=True):
                assert request.wait(60.0)
                for name, array in expected.items():
                    np.testing.assert_allclose(request.results[name], array, rtol=1e-5)
        assert lanes_of(network, "deliver") == {"inline", "STAGED.0 copies"}
