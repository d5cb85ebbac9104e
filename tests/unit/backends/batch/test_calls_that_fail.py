"""Want of memory for any one call inside BATCH: every request is answered, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest

import aioinfer
from aioinfer.backends import batch
from aioinfer.errors import AioInferError
from unit.backends.failing_calls import FailingCalls

WAIT_S = 60
MODEL = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[n,4] x) => (float[n,4] y) { a = Relu (x) y = Neg (a) }""")
X = np.ones((1, 4), np.float32)
Ask = Callable[[aioinfer.ExecutableNetwork], list[Any]]


def started(network: aioinfer.ExecutableNetwork) -> list[Any]:
    """Outcomes of requests that are started together; what start_async raises is one, too."""
    outcomes: list[Any] = []
    requests = [network.create_infer_request() for _ in range(5)]
    for request in list(requests):
        try:
            request.start_async({"x": X})
        except AioInferError as error:
            outcomes.append(error)
            requests.remove(request)
    for request in requests:
        try:
            assert request.wait(WAIT_S), "it never ended"
            outcomes.append(request.results)
        except AioInferError as error:
            outcomes.append(error)
    return outcomes


def called_back(network: aioinfer.ExecutableNetwork) -> list[Any]:
    """Outcomes of requests with a callback."""
    outcomes: list[Any] = []
    requests = [network.create_infer_request() for _ in range(5)]
    for request in list(requests):
        request.set_callback(lambda _, error: outcomes.append(error))
        try:
            request.start_async({"x": X})
        except AioInferError as error:
            outcomes.append(error)
            requests.remove(request)
    for request in requests:
        try:
            assert request.wait(WAIT_S), "it never ended"
        except AioInferError:
            continue  # which its callback has told
    assert network.admission.wait_until_over(WAIT_S)
    return outcomes


@pytest.mark.parametrize("ask", [started, called_back])
def test_each_request_is_answered_once_whichever_call_finds_no_memory(
    core: aioinfer.Core, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    calls = FailingCalls(batch, monkeypatch)
    with core.load_network(MODEL, "BATCH:REFERENCE(4)") as network:
        ask(network)
        failed_count = 0
        for number in range(1000):
            calls.arm(number)
            outcomes = ask(network)
            calls.disarm()
            assert len(outcomes) == 5, calls.where
            failed_count += any(isinstance(item, AioInferError) for item in outcomes)
            results = network.create_infer_request().infer_sync({"x": X}, deadline_s=WAIT_S)
            np.testing.assert_array_equal(results["y"], -X, err_msg=calls.where)
            assert network.admission.wait_until_over(WAIT_S), calls.where
            assert network.admission.run_count == 0, calls.where
            if not calls.where:
                break
        assert not calls.where
        assert number > 50, "calls were not seen"
        assert failed_count > 10
