"""Several compute queues: how many slots they want, and runs that are computed side by side."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from aioinfer.backends.accelerator.executable_network import useful_slot_count
from aioinfer.backends.opencl.plugin import OpenClPlugin
from unit.backends.accelerator.fake_driver import FakeDriver
from unit.backends.accelerator.serving import negating, pump, serving

X = np.arange(12, dtype=np.float32).reshape(3, 4)


class ManyStreams(OpenClPlugin):
    """OPENCL with as many compute queues as somebody wants, up to four."""

    most_streams: ClassVar[int] = 4


@pytest.mark.parametrize(
    ("streams", "for_latency", "for_throughput"), [(1, 2, 3), (2, 3, 5), (4, 5, 9)]
)
def test_slots_for_so_many_streams(streams: int, for_latency: int, for_throughput: int) -> None:
    assert useful_slot_count(streams, is_for_latency=True) == for_latency
    assert useful_slot_count(streams, is_for_latency=False) == for_throughput


@pytest.mark.parametrize("seed", range(5))
def test_slots_take_turns_with_the_queues_and_results_are_right(seed: int) -> None:
    driver = FakeDriver(is_eager=False)
    with serving(driver, ManyStreams) as core:
        with core.load_network(negating(X), "FAKE", {"NUM_STREAMS": 2}) as network:
            (context,) = driver.contexts
            requests = [network.create_infer_request() for _ in range(6)]
            for number, request in enumerate(requests):
                request.start_async(X + number)
            pump(context, *requests, seed=seed)
            for number, request in enumerate(requests):
                np.testing.assert_array_equal(request.results["y"], -(X + number))
            names = [queue.name for queue in context.queues]
            assert names.count("FAKE.0 compute") == names.count("FAKE.0 compute 1") == 1
        used = {item for item in context.done if item.endswith(": launch")}
        assert used == {"compute: launch", "1: launch"}


@pytest.mark.parametrize(("given", "count"), [("AUTO", 1), (3, 3)])
def test_a_network_says_how_many_streams_it_has(given: Any, count: int) -> None:
    with serving(FakeDriver(), ManyStreams) as core:
        config = {"NUM_STREAMS": given}
        with core.load_network(negating(X), "FAKE", config) as network:
            assert network.get_config("NUM_STREAMS") == count
            assert network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS") == count + 1
