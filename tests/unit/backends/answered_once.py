"""Five requests of a network while one call of a package finds no memory, asked in each way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np
import onnx.parser
import pytest

import aioinfer
from aioinfer.errors import AioInferError
from unit.backends.failing_calls import FailingCalls

__all__ = ["WAYS", "Ask", "X", "branched_model", "check_each_is_answered_once", "model"]

WAIT_S = 20
TOLD = (AioInferError, MemoryError)
"""What a caller is told with; MemoryError where its own call has found none."""
X = np.ones((1, 4), np.float32)
Ask = Callable[[aioinfer.ExecutableNetwork], list[Any]]


def model() -> onnx.ModelProto:
    """Make a model of two nodes."""
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n,4] x) => (float[n,4] y) { a = Relu (x) y = Neg (a) }""")


def branched_model() -> onnx.ModelProto:
    """Make a model with the same outcome whose nodes, on two devices in turn, begin side by side.

    Cut before ``d`` and ``f``, it has two parts that nothing comes before.
    """
    return onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n,4] x) => (float[n,4] y) {
            a = Relu (x) b = Neg (x) c = Abs (b) d = Neg (a) e = Abs (d) f = Add (c, e)
            k = Sub (f, c) y = Neg (k)
        }""")


def started(network: aioinfer.ExecutableNetwork) -> list[Any]:
    """Outcomes of requests that are started together; what start_async raises is one, too."""
    outcomes: list[Any] = []
    requests = [network.create_infer_request() for _ in range(5)]
    for request in list(requests):
        try:
            request.start_async({"x": X})
        except TOLD as error:
            outcomes.append(error)
            requests.remove(request)
    for request in requests:
        try:
            outcomes.append(results_of(request))
        except AioInferError as error:
            outcomes.append(error)
    return outcomes


def results_of(request: aioinfer.InferRequest) -> Any:
    """Wait for its results, once more where the call of wait itself has no memory."""
    try:
        assert request.wait(WAIT_S), "it never ended"
        return request.results
    except MemoryError:
        assert request.wait(WAIT_S), "it never ended"
        return request.results


def called_back(network: aioinfer.ExecutableNetwork, *, cancels: bool = False) -> list[Any]:
    """Outcomes of requests with a callback."""
    outcomes: list[Any] = []
    requests = [network.create_infer_request() for _ in range(5)]
    for request in list(requests):
        request.set_callback(lambda _, error: outcomes.append(error))
        try:
            request.start_async({"x": X})
        except TOLD as error:
            outcomes.append(error)
            requests.remove(request)
    for request in reversed(requests if cancels else []):
        with suppress(MemoryError):
            request.cancel()
    for request in requests:
        try:
            results_of(request)
        except AioInferError:
            continue  # which its callback has told
    try:
        is_over = network.admission.wait_until_over(WAIT_S)
    except MemoryError:  # of that call, which the test has made
        is_over = network.admission.wait_until_over(WAIT_S)
    assert is_over
    return outcomes


def cancelled(network: aioinfer.ExecutableNetwork) -> list[Any]:
    """Outcomes of requests with a callback that are cancelled, the last first."""
    return called_back(network, cancels=True)


def awaited(network: aioinfer.ExecutableNetwork) -> list[Any]:
    """Outcomes of requests that an event loop awaits together."""

    async def ask() -> list[Any]:
        calls = [network.infer({"x": X}) for _ in range(5)]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), WAIT_S)

    outcomes = asyncio.run(ask())
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or isinstance(outcome, TOLD)
    return outcomes


WAYS = [started, called_back, cancelled, awaited]


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
        failed_count += any(isinstance(item, TOLD) for item in outcomes)
        results = network.create_infer_request().infer_sync({"x": X}, deadline_s=WAIT_S)
        np.testing.assert_array_equal(results["y"], -X, err_msg=calls.where)
        for part in (network, *getattr(network, "networks", ())):
            assert part.admission.wait_until_over(WAIT_S), calls.where
            assert part.admission.run_count == 0, calls.where
        if not calls.where:
            return number, failed_count
    raise AssertionError(f"{calls.where} fails, too: there are more than 1000 calls")
