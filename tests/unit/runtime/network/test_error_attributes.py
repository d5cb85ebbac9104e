"""What the errors of requests, inputs and models carry besides their text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


X = np.zeros((1, 3), np.float32)


def caught_in_callback(
    network: aioinfer.ExecutableNetwork, call: Callable[[aioinfer.InferRequest], Any]
) -> BaseException | None:
    """Call something in the callback of a run, on a thread of aioinfer's own."""
    raised: list[BaseException] = []

    def tell(request: aioinfer.InferRequest, _error: BaseException | None) -> None:
        try:
            call(request)
        except errors.AioInferError as error:
            raised.append(error)

    request = network.create_infer_request()
    request.set_callback(tell)
    request.start_async(X)
    assert request.wait(60.0)
    return raised[0] if raised else None


def caught(call: Callable[[], Any]) -> BaseException | None:
    try:
        call()
    except errors.AioInferError as error:
        return error
    return None


def of_a_coroutine_as_callback(network: aioinfer.ExecutableNetwork) -> BaseException | None:
    async def tell(*_: Any) -> None:
        pass

    request = network.create_infer_request()
    request.set_callback(lambda *arguments: tell(*arguments))
    request.start_async(X)
    return caught(lambda: request.wait(60.0))


def of_a_queue_on_a_loop(network: aioinfer.ExecutableNetwork) -> BaseException | None:
    queue = aioinfer.AsyncInferQueue(network, jobs=1)

    async def main() -> BaseException | None:
        return caught(queue.wait_all)

    return asyncio.run(main())


def of_a_full_queue_in_its_callback(network: aioinfer.ExecutableNetwork) -> BaseException | None:
    queue, raised = aioinfer.AsyncInferQueue(network, jobs=1), list[BaseException | None]()

    def tell(_request: aioinfer.InferRequest, number: int) -> None:
        if number == 0:
            queue.start_async(X, 1)
            raised.append(caught(lambda: queue.start_async(X, 2)))

    queue.set_callback(tell)
    queue.start_async(X, 0)
    queue.wait_all()
    return raised[0]


def of_a_cancelled_source(network: aioinfer.ExecutableNetwork) -> BaseException | None:
    async def main() -> BaseException | None:
        async def source() -> Any:
            for task in asyncio.all_tasks() - {main_task}:
                task.cancel()
            yield X
            await asyncio.sleep(3600.0)

        main_task = asyncio.current_task()
        try:
            async for _ in network.stream(source()):
                pass
        except errors.AioInferError as error:
            return error
        return None

    return asyncio.run(main())


def of_another_network(network: aioinfer.ExecutableNetwork) -> BaseException | None:
    with aioinfer.Core() as core:
        other = core.load_network(tiny_model(), "REFERENCE").create_infer_request()
        return caught(lambda: network.stream([X], request=other))


MISTAKES: dict[str, tuple[Callable[[aioinfer.ExecutableNetwork], Any], dict[str, Any]]] = {
    "infer_sync in a callback": (
        lambda network: caught_in_callback(network, lambda request: request.infer_sync(X)),
        {"state": "idle"},
    ),
    "wait in a callback": (
        lambda network: caught_in_callback(network, lambda request: request.wait()),
        {"state": "idle"},
    ),
    "close in a callback": (
        lambda network: caught_in_callback(network, lambda _: network.close()),
        {"request_id": None},
    ),
    "warm_up in a callback": (
        lambda network: caught_in_callback(network, lambda _: network.warm_up()),
        {"request_id": None},
    ),
    "wait_all in a callback": (
        lambda network: caught_in_callback(
            network, lambda _: aioinfer.AsyncInferQueue(network, jobs=1).wait_all()
        ),
        {"request_id": None},
    ),
    "wait_all on a loop": (of_a_queue_on_a_loop, {"request_id": None}),
    "a full queue in its callback": (of_a_full_queue_in_its_callback, {"state": "busy"}),
    "a coroutine as callback": (of_a_coroutine_as_callback, {"stage": "callback"}),
    "a cancelled source": (of_a_cancelled_source, {"state": "cancelled", "stage": "source"}),
    "no node times": (
        lambda network: caught(lambda: _idle(network).profiling()),
        {"key": "PERF_COUNT", "value": False},
    ),
    "a request of another network": (of_another_network, {"key": "request"}),
    "no look-ahead": (
        lambda network: caught(lambda: network.stream([X], look_ahead=0)),
        {"key": "look_ahead", "value": 0},
    ),
    "out of order of one request": (
        lambda network: caught(
            lambda: network.stream([X], ordered=False, request=network.create_infer_request())
        ),
        {"key": "ordered", "value": False},
    ),
}


def _idle(network: aioinfer.ExecutableNetwork) -> aioinfer.InferRequest:
    request = network.create_infer_request()
    request.infer_sync(X)
    return request


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_says_of_whom_it_is_and_what_was_wrong(core: aioinfer.Core, mistake: str) -> None:
    network = core.load_network(tiny_model(), "REFERENCE")
    make, said = MISTAKES[mistake]
    error = make(network)
    assert isinstance(error, errors.RequestStateError | errors.PropertyError)
    assert (error.network, error.device) == ("tiny", network.device)
    assert {name: getattr(error, name) for name in said} == said
    if isinstance(error, errors.RequestStateError) and said.get("state") == "idle":
        assert isinstance(error.request_id, int)


def test_a_postprocess_that_asks_for_its_own_results_is_told_where_it_is(
    core: aioinfer.Core,
) -> None:
    requests: list[aioinfer.InferRequest] = []
    config = {"POSTPROCESS_STREAMS": 0}
    network = core.load_network(
        tiny_model(), "REFERENCE", config, postprocess=lambda _: requests[0].results
    )
    requests.append(network.create_infer_request())
    with pytest.raises(errors.RequestStateError) as refused:
        requests[0].infer_sync(X)
    assert (refused.value.request_id, refused.value.stage) == (requests[0].id, "postprocess")
    assert (refused.value.state, refused.value.network) == ("busy", "tiny")
