"""Large inputs: copied by several threads, or written by the caller where the device reads them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.accelerator import device_slot
from aioinfer.backends.accelerator.executable_network import AcceleratorNetwork
from aioinfer.errors import ClosedError, TensorError
from aioinfer.executors import Lane, ManualExecutor, Ready, Then
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver
from unit.backends.accelerator.serving import CapturingPlugin, negating, pump, serving

pytestmark = pytest.mark.usefixtures("hands_copies_over")

LARGE = np.arange(130 * 130, dtype=np.float32).reshape(130, 130)
SMALL = np.arange(12, dtype=np.float32).reshape(3, 4)


class TakesTwo(ManualExecutor):
    """Closes behind the second function."""

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        if self.waiting_count == 2:
            raise ClosedError("the executor takes two")
        super().run(function, after, then)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver(replace(FACTS, can_lend_host_memory=True, can_capture=True), is_eager=False)


@pytest.fixture
def fake_core(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Core]:
    monkeypatch.setattr("aioinfer.backends.accelerator.memory.slot_memory._ROUND_TRIP_BYTES", 1000)
    with serving(driver, CapturingPlugin) as core:
        yield core


def test_parts_of_a_large_input_are_copied_each_by_itself(
    driver: FakeDriver, fake_core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_slot, "_PART_BYTES", LARGE.nbytes // 4)
    with fake_core.load_network(negating(LARGE), "FAKE") as network:
        request = network.create_infer_request()
        for number in range(3):
            request.start_async(LARGE + number)
            pump(driver.contexts[0], request)
            np.testing.assert_array_equal(request.results["y"], -(LARGE + number))
        fills = [span for span in network.trace() if span.stage == "fill"]
        assert len(fills) == 12


def test_a_part_that_is_refused_ends_the_run_once_those_before_it_are_copied(
    fake_core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_slot, "_PART_BYTES", LARGE.nbytes // 4)
    with fake_core.load_network(negating(LARGE), "FAKE") as network:
        request, copies = network.create_infer_request(), TakesTwo("copies")
        with monkeypatch.context() as patch:
            patch.setattr(network, "copy_executor", copies)
            request.start_async(LARGE)
        for _ in range(2):  # they write the slot's memory
            assert not request.wait(0.0)
            copies.release()
        with pytest.raises(ClosedError, match="takes two"):
            request.wait(20.0)


def test_what_is_slow_to_copy_is_handed_over_for_fewer_bytes(
    driver: FakeDriver, fake_core: Core
) -> None:
    small = np.arange(65 * 64, dtype=np.float32).reshape(64, 65)
    with fake_core.load_network(negating(small), "FAKE") as network:
        request, fills = network.create_infer_request(), []
        for given in (small, np.asfortranarray(small)):
            request.start_async(given)
            pump(driver.contexts[0], request)
            np.testing.assert_array_equal(request.results["y"], -small)
            fills.append(len([span for span in network.trace() if span.stage == "fill"]))
        assert fills == [0, 1]


def test_an_input_that_the_caller_writes_in_place_is_not_copied_on_the_host(
    driver: FakeDriver, fake_core: Core
) -> None:
    with fake_core.load_network(negating(LARGE), "FAKE") as network:
        request, (context,) = network.create_infer_request(), driver.contexts
        mine = request.get_tensor("x").data
        assert not mine.any()
        assert any(np.shares_memory(mine, item.array) for item in context.host_memories)
        for number in range(2):
            mine[:] = LARGE + number
            request.start_async()
            pump(context, request)
            np.testing.assert_array_equal(request.results["y"], -(LARGE + number))
        assert not [span for span in network.trace() if span.stage == "fill"]
        request.start_async({"x": mine[::-1]})
        pump(context, request)
        np.testing.assert_array_equal(request.results["y"], -mine[::-1])
        assert [span for span in network.trace() if span.stage == "fill"]


def test_a_small_input_that_was_written_in_place_goes_with_the_launches(
    driver: FakeDriver, fake_core: Core
) -> None:
    with fake_core.load_network(negating(SMALL), "FAKE") as network:
        request, (context,) = network.create_infer_request(), driver.contexts
        request.get_tensor("x").data[:] = SMALL
        request.start_async()
        pump(context, request)
        np.testing.assert_array_equal(request.results["y"], -SMALL)
        assert "compute: replay" in context.done
        assert "upload: write" not in context.done


def test_memory_that_was_lent_is_known_by_its_place_and_size_alone(
    driver: FakeDriver, fake_core: Core
) -> None:
    with fake_core.load_network(negating(LARGE), "FAKE") as network:
        assert isinstance(network, AcceleratorNetwork)
        lent = network.lent
        mine = network.create_infer_request().get_tensor("x").data
        assert lent.has(mine)
        assert lent.has(mine.reshape(-1))
        for other in (mine[1:], mine[:-1], mine.T, LARGE, "x"):
            assert not lent.has(other)
        with pytest.raises(TensorError):
            network.create_infer_request().infer_sync({"x": mine.reshape(-1)})
        del mine, other
        gc.collect()
