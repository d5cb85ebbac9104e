"""What the errors of requests, inputs and models carry besides their text."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

import aioinfer
from aioinfer import errors
from aioinfer.testing import MockDevices, VirtualTimer
from unit.runtime.models import tiny_model


def test_a_deadline_says_how_long_it_was_and_where_the_run_was(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    network.clock = clock = VirtualTimer()
    running, waiting = (network.create_infer_request() for _ in range(2))
    x = np.zeros((1, 3), np.float32)
    running.start_async(x, deadline_s=2.0)
    while network.statistics().waiting_run_count == 0:
        waiting = network.create_infer_request()
        waiting.start_async(x, deadline_s=1.5)
    clock.advance(2.5)
    for request, deadline_s, stage in ((running, 2.0, "compute"), (waiting, 1.5, "")):
        with pytest.raises(errors.DeadlineExceededError) as caught:
            _ = request.results
        error = caught.value
        assert (error.deadline_s, error.stage, error.request_id) == (deadline_s, stage, request.id)
        assert error.elapsed_s == deadline_s
        assert (error.network, error.device) == ("tiny", "MOCK.0")
        assert f"deadline of {deadline_s:g} s" in str(error)


def test_a_full_network_says_how_many_wait_and_how_many_may(
    core: aioinfer.Core, held: MockDevices
) -> None:
    network = core.load_network(tiny_model(), "MOCK.0", {"MAX_QUEUED_REQUESTS": 2})
    x = np.zeros((1, 3), np.float32)
    while network.statistics().waiting_run_count < 2:
        network.create_infer_request().start_async(x)
    with pytest.raises(errors.OverloadedError) as caught:
        network.create_infer_request().start_async(x)
    assert (caught.value.waiting_count, caught.value.limit) == (2, 2)
    assert caught.value.network == "tiny"


def test_wrong_inputs_are_told_in_attributes(core: aioinfer.Core, held: MockDevices) -> None:
    network = core.load_network(tiny_model(), "MOCK.0")
    with pytest.raises(errors.TensorError) as caught:
        asyncio.run(network.infer(np.zeros((1, 4), np.float32)))
    error = caught.value
    assert (error.tensor, error.network) == ("x", "tiny")
    assert error.shape == (1, 4)
    assert error.wanted_shape == network.inputs[0].shape
    with pytest.raises(errors.TensorError) as caught:
        asyncio.run(network.infer(np.zeros((1, 3), np.int64)))
    assert (caught.value.dtype, caught.value.wanted_dtype) == ("int64", "float32")


def test_a_busy_request_says_which_it_is_and_what_it_does(
    core: aioinfer.Core, held: MockDevices
) -> None:
    request = core.load_network(tiny_model(), "MOCK.0").create_infer_request()
    request.start_async(np.zeros((1, 3), np.float32))
    with pytest.raises(errors.RequestBusyError) as caught:
        request.get_tensor("x")
    assert (caught.value.request_id, caught.value.state) == (request.id, "busy")
    request.cancel()
    with pytest.raises(errors.RequestCancelledError) as cancelled:
        _ = request.results
    assert (cancelled.value.request_id, cancelled.value.network) == (request.id, "tiny")


def test_a_model_that_is_no_model_names_its_file(core: aioinfer.Core, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08")
    with pytest.raises(errors.ModelError) as caught:
        core.read_model(path)
    assert caught.value.model == str(path)
    assert str(path) not in caught.value.reason
    assert caught.value.reason in str(caught.value)
