"""Runs of an accelerator tell what they uploaded, downloaded and copied, and nothing more."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioinfer import CopiedBytes, Core
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver
from unit.backends.accelerator.serving import CapturingPlugin, negating, pump, serving

X = np.arange(12, dtype=np.float32).reshape(3, 4)
COUNTED = {"PERF_COUNT": True}
STAYS = {"OUTPUT_LOCATION": {"y": "DEVICE"}, **COUNTED}


@pytest.fixture
def driver() -> FakeDriver:
    facts = replace(
        FACTS, kind="discrete", can_capture=True, memory_bytes=1 << 30, largest_buffer_bytes=1 << 30
    )
    return FakeDriver(facts)


@pytest.fixture
def fake_core(driver: FakeDriver) -> Iterator[Core]:
    with serving(driver) as core:
        yield core


def run(driver: FakeDriver, network: Any, given: Any = X, **bound: Any) -> Any:
    request = network.create_infer_request()
    for name, array in bound.items():
        request.set_tensor(name, array)
    request.start_async({"x": given})
    pump(driver.contexts[0], request)
    return request


def test_each_stage_says_what_it_has_copied(driver: FakeDriver, fake_core: Core) -> None:
    with fake_core.load_network(negating(X), "FAKE", COUNTED) as network:
        request = run(driver, network)
        profile = request.profiling()
        assert CopiedBytes("upload", "upload", X.nbytes) in profile.copies
        assert CopiedBytes("download", "download", X.nbytes) in profile.copies
        assert profile.copied_bytes["upload"] == profile.copied_bytes["download"] == X.nbytes
        assert len(profile) == 1
        sums = network.statistics().copied_bytes
        assert sums["upload"]["upload"] == X.nbytes
        run(driver, network)
        again = network.statistics().copied_bytes
        assert again["upload"]["upload"] == again["download"]["download"] == 2 * X.nbytes
        said = {
            (span.stage, kind): size_bytes
            for span in network.trace()
            for kind, size_bytes in span.copied_bytes.items()
        }
        assert said["upload", "upload"] == said["download", "download"] == X.nbytes
        assert not [kind for stage, kind in said if stage == "compute"]


def test_a_warm_up_copies_for_nobody(driver: FakeDriver, fake_core: Core) -> None:
    with fake_core.load_network(negating(X), "FAKE") as network:
        driver.is_eager = True
        network.warm_up()
        assert network.statistics().copied_bytes == {}


def test_a_replayed_round_trip_says_what_is_captured_in_it(driver: FakeDriver) -> None:
    with serving(driver, CapturingPlugin) as core, core.load_network(negating(X), "FAKE") as net:
        for _ in range(3):
            run(driver, net)
        sums = net.statistics().copied_bytes
        assert sums["replay"]["upload"] == sums["replay"]["download"] > 0
        assert sums["replay"]["upload"] % X.nbytes == 0


def test_what_many_threads_fill_is_counted_once(driver: FakeDriver, fake_core: Core) -> None:
    large = np.ones((3, 1 << 20), np.float32)
    with fake_core.load_network(negating(large), "FAKE") as network:
        run(driver, network, large)
        assert network.statistics().copied_bytes["fill"] == {"host": large.nbytes}
        fills = [span for span in network.trace() if span.stage == "fill"]
        assert len(fills) > 1
        assert sum(span.copied_bytes["host"] for span in fills) == large.nbytes
        assert all(span.copied_bytes["host"] < large.nbytes for span in fills)


def test_an_output_that_stays_costs_when_it_is_read(driver: FakeDriver, fake_core: Core) -> None:
    with fake_core.load_network(negating(X), "FAKE", STAYS) as network:
        request = run(driver, network)
        tensor = request.results["y"]
        assert "download" not in request.profiling().copied_bytes
        follower = run(driver, network, tensor)
        assert "upload" not in follower.profiling().copied_bytes
        driver.is_eager = True
        for _ in range(3):
            np.testing.assert_array_equal(tensor.numpy(), -X)
        assert request.profiling().copied_bytes["later_download"] == X.nbytes
        assert network.statistics().copied_bytes["compute"] == {"later_download": X.nbytes}
        assert "later_download" not in follower.profiling().copied_bytes


def test_counting_keeps_no_memory_of_the_device(driver: FakeDriver, fake_core: Core) -> None:
    network = fake_core.load_network(negating(X), "FAKE", STAYS)
    request = run(driver, network)
    tensor = request.results["y"]
    block = tensor.content.block
    gc.collect()
    gc.disable()
    try:
        driver.is_eager = True
        tensor.numpy()
        pool = block._pool
        before = len(pool._free)
        del request, block
        network.create_infer_request()
        assert len(pool._free) == before, "the tensor holds it"
        del tensor
        assert len(pool._free) == before + 1, "freed with its last holder, without the collector"
    finally:
        gc.enable()
        network.close()
