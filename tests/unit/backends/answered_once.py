"""Five requests of a network while one call of a package finds no memory, asked in each way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnx.parser
import pytest

import aioinfer
from aioinfer.errors import AioInferError
from unit.backends.failing_calls import FailingCalls

__all__ = ["WAYS", "Ask", "X", "called_back", "check_each_is_answered_once", "model", "started"]

WAIT_S = 60
X = np.ones((1, 4), np.float32)
Ask = Callable[[aioinfer.ExecutableNetwork], list[Any]]


def model() -> onnx.ModelProto:
    """Make a model of two nodes."""
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n,4] x) => (float[n,4] y) { a = Relu (x) y = Neg (a) }""")


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


def awaited(network: aioinfer.ExecutableNetwork) -> list[Any]:
    """Outcomes of requests that an event loop awaits together."""

    async def ask() -> list[Any]:
        calls = [network.infer({"x": X}) for _ in range(5)]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), WAIT_S)

    outcomes = asyncio.run(ask())
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or isinstance(outcome, AioInferError)
    return outcomes


WAYS = [started, called_back, awaited]


def check_each_is_answered_once(
    network: aioinfer.ExecutableNetwork, package: ModuleType, patch: pytest.MonkeyPatch, ask: Ask
) -> tuple[int, int]:
    """Have each call of the package fail once; count the calls, and those of which one was told.

    Every time five requests are asked for, and one more when they are answered.
    """
    ask(network)
    calls = FailingCalls(package, patch)
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
            return number, failed_count
    raise AssertionError(f"{calls.where} fails, too: there are more than 1000 calls")
