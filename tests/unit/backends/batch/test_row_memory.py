"""Rows of joined runs lie where an accelerator reads them itself, and that memory is used again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.batch.executable_network import BatchNetwork
from unit.backends.accelerator.fake_driver import FACTS, FakeDriver
from unit.backends.accelerator.serving import negating, serving

X = np.arange(4, dtype=np.float32).reshape(1, 4)
WAIT_S = 20.0


@pytest.fixture(params=[True, False])
def lends(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def fake_core(lends: bool) -> Iterator[aioinfer.Core]:
    driver = FakeDriver(replace(FACTS, can_lend_host_memory=lends, kind="discrete"), is_eager=True)
    with serving(driver) as core:
        yield core


def test_the_rows_are_gathered_into_memory_that_the_device_reads(
    fake_core: aioinfer.Core, lends: bool
) -> None:
    config = {"AUTO_BATCH_TIMEOUT": 60_000}
    with fake_core.load_network(negating(X, dynamic=True), "BATCH:FAKE(3)", config) as network:
        for turn in range(3):
            inputs = [X + 10 * number + turn for number in range(3)]
            requests = [network.create_infer_request() for _ in inputs]
            for request, given in zip(requests, inputs, strict=True):
                request.start_async({"x": given})
            for request, given in zip(requests, inputs, strict=True):
                assert request.wait(WAIT_S)
                np.testing.assert_array_equal(request.results["y"], -given)
        assert network.statistics().parts[0].batch_sizes == {3: 3}
        copied = network.statistics().copied_bytes
        assert copied["join"] == {"host": 3 * 3 * X.nbytes}
        assert isinstance(network, BatchNetwork)
        free = network._arrays._free
        assert len(free) == (1 if lends else 0)
    assert not free
