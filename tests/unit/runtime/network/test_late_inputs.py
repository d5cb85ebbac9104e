"""Inputs that another device has kept are downloaded on an executor, and no caller waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from aioinfer import Core, ExecutableNetwork, Tensor
from aioinfer.errors import ClosedError, DeadlineExceededError, DeviceError, RequestCancelledError
from aioinfer.runtime.tensors.kept_array import KeptArray
from aioinfer.testing import VirtualTimer

X = np.arange(12, dtype=np.float32).reshape(3, 4)
WAIT_S = 20.0


class Held(KeptArray):
    """What a device has, and gives when the test says so."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__("ELSEWHERE", X.shape, X.dtype)
        self.is_asked_for, self.may_come = threading.Event(), threading.Event()
        self.thread, self.count, self.error = "", 0, error

    def _download(self) -> Any:
        self.thread, self.count = threading.current_thread().name, self.count + 1
        self.is_asked_for.set()
        assert self.may_come.wait(WAIT_S)
        if self.error is not None:
            raise self.error
        return X.copy()

    def __dlpack_device__(self) -> tuple[int, int]:
        raise NotImplementedError

    def __dlpack__(self, **options: Any) -> Any:
        raise NotImplementedError


def negation(dims: list[Any]) -> ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.fixture(params=["CPU", "REFERENCE", "ONNXRUNTIME", "HETERO:CPU,REFERENCE", "BATCH:CPU"])
def network(request: pytest.FixtureRequest) -> Iterator[ExecutableNetwork]:
    dims = ["n", 4] if str(request.param).startswith("BATCH") else [3, 4]
    with Core() as core:
        yield core.load_network(negation(dims), request.param)


async def test_the_event_loop_goes_on_meanwhile(network: ExecutableNetwork) -> None:
    held = Held()
    task = asyncio.ensure_future(network.infer({"x": Tensor(held)}))
    await asyncio.to_thread(held.is_asked_for.wait, WAIT_S)
    assert not task.done()
    held.may_come.set()
    np.testing.assert_array_equal((await task)["y"], -X)
    assert held.thread.startswith("downloads")
    np.testing.assert_array_equal((await network.infer({"x": Tensor(held)}))["y"], -X)
    assert held.count == 1
    (span,) = [span for span in network.trace() if span.stage == "download inputs"]
    assert span.executor == "downloads"


@pytest.mark.parametrize("by_name", [False, True])
async def test_the_event_loop_goes_on_where_an_inline_preprocess_hands_it_on(
    by_name: bool,
) -> None:
    held, config = Held(), {"PREPROCESS_STREAMS": 0}
    function = {"x": Tensor} if by_name else lambda given: {"x": Tensor(given["x"])}
    async with Core() as core:
        network = core.load_network(negation([3, 4]), "CPU", config, preprocess=function)
        task = asyncio.ensure_future(network.infer({"x": held}))
        await asyncio.to_thread(held.is_asked_for.wait, WAIT_S)
        assert not task.done()
        held.may_come.set()
        np.testing.assert_array_equal((await task)["y"], -X)
        assert held.thread.startswith("downloads")


def test_start_async_returns_at_once(network: ExecutableNetwork) -> None:
    held, request = Held(), network.create_infer_request()
    request.set_tensor("x", Tensor(held))
    for _ in range(2):
        request.start_async()
        assert held.is_asked_for.wait(WAIT_S)
        held.may_come.set()
        request.wait()
        np.testing.assert_array_equal(request.results["y"], -X)
    assert held.count == 1


def test_a_run_that_is_cancelled_meanwhile_ends_with_its_download(
    network: ExecutableNetwork,
) -> None:
    held, request = Held(), network.create_infer_request()
    request.start_async({"x": Tensor(held)})
    assert held.is_asked_for.wait(WAIT_S)
    assert "download inputs" in repr(request)
    request.cancel()
    assert not request.wait(0.0), "it is answered, and has not ended"
    held.may_come.set()
    with pytest.raises(RequestCancelledError):
        request.wait()
    np.testing.assert_array_equal(request.infer_sync({"x": X})["y"], -X)
    assert network.statistics().running_run_count == 0


def test_a_deadline_counts_meanwhile(network: ExecutableNetwork) -> None:
    clock = network.clock = VirtualTimer()
    held, request = Held(), network.create_infer_request()
    request.start_async({"x": Tensor(held)}, deadline_s=1.0)
    assert held.is_asked_for.wait(WAIT_S)
    clock.advance(2.0)
    with pytest.raises(DeadlineExceededError, match="in stage 'download inputs'"):
        _ = request.results
    held.may_come.set()
    with pytest.raises(DeadlineExceededError):
        request.wait()


def test_a_download_that_fails_fails_the_run_and_may_be_tried_again(
    network: ExecutableNetwork,
) -> None:
    held, request = Held(DeviceError("a cable")), network.create_infer_request()
    held.may_come.set()
    with pytest.raises(DeviceError, match="a cable"):
        request.infer_sync({"x": Tensor(held)})
    held.error = None
    np.testing.assert_array_equal(request.infer_sync({"x": Tensor(held)})["y"], -X)


def test_a_network_that_is_aborted_answers_at_once(network: ExecutableNetwork) -> None:
    held, request = Held(), network.create_infer_request()
    request.start_async({"x": Tensor(held)})
    assert held.is_asked_for.wait(WAIT_S)
    network.abort()
    held.may_come.set()
    with pytest.raises(ClosedError):
        request.wait()
