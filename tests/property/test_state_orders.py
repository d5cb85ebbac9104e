"""States in random orders of all that may happen to their runs, beside a model of numpy arrays."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.errors import DeadlineExceededError, DeviceError, RequestCancelledError
from aioinfer.testing import MockDevices
from onnx_text import parse_proto
from unit.backends.accelerator.fake_driver import FACTS, FakeContext, FakeDriver
from unit.backends.accelerator.serving import CapturingPlugin, negating, pump, serving
from unit.runtime.held_runs import finish

ENDED = (RequestCancelledError, DeviceError, DeadlineExceededError)
X = np.arange(12, dtype=np.float32).reshape(3, 4)
STEP_COUNT = 40
DOINGS = ("run", "run", "run", "cancel", "fail", "late", "reset", "set", "both")


def state_of(request: aioinfer.InferRequest) -> np.ndarray:
    (state,) = request.query_state()
    return state.state


def set_state(request: aioinfer.InferRequest, array: np.ndarray) -> None:
    (state,) = request.query_state()
    state.state = array


@pytest.mark.parametrize("plugin", [OpenClPlugin, CapturingPlugin])
@pytest.mark.parametrize("kind", ["discrete", "cpu"])
@pytest.mark.parametrize("seed", range(6))
def test_a_device_with_memory_of_its_own_keeps_what_succeeded(
    seed: int, kind: str, plugin: type[OpenClPlugin]
) -> None:
    """The device does what is enqueued in any order; each success negates a request's state."""
    order = random.Random(seed)
    driver = FakeDriver(replace(FACTS, kind=kind, can_capture=True), is_eager=False)
    with serving(driver, plugin) as core:
        network = core.load_network(negating(X), "FAKE", {"STATE": {"x": "y"}})
        (context,) = driver.contexts
        requests = [network.create_infer_request() for _ in range(3)]
        kept = [np.zeros_like(X) for _ in requests]
        for step in range(STEP_COUNT):
            doing, number = order.choice(DOINGS), order.randrange(3)
            if doing == "reset":
                requests[number].reset_state()
                kept[number] = np.zeros_like(X)
            elif doing == "set":
                kept[number] = X + step
                set_state(requests[number], kept[number])
            else:
                started = order.sample(range(3), 2) if doing == "both" else [number]
                for at in started:
                    _run_on_fake(context, driver, requests[at], doing, order)
                for at in started:
                    if _has_succeeded(context, requests[at], order):
                        kept[at] = -kept[at]
                driver.fails.clear()
            if order.random() < 0.3:
                np.testing.assert_array_equal(state_of(requests[number]), kept[number])
        for request, array in zip(requests, kept, strict=True):
            np.testing.assert_array_equal(state_of(request), array)
        assert len(context.alive) < 40, "blocks go back, whatever has become of their runs"


def _run_on_fake(
    context: FakeContext,
    driver: FakeDriver,
    request: aioinfer.InferRequest,
    doing: str,
    order: random.Random,
) -> None:
    if doing == "fail":
        name = order.choice(["compute: launch", "1: launch", "upload: write", "compute: replay"])
        driver.fails[name] = DriverError(ErrorKind.OTHER, "planted")
    request.start_async({}, deadline_s=0 if doing == "late" else None)
    for _ in range(order.randrange(6)):
        context.advance(order)
    if doing == "cancel":
        request.cancel()


def _has_succeeded(
    context: FakeContext, request: aioinfer.InferRequest, order: random.Random
) -> bool:
    try:
        pump(context, request, seed=order.randrange(100))
    except ENDED:
        while True:
            context.run_all()
            try:
                state_of(request)
            except aioinfer.errors.RequestBusyError:
                continue
            return False
    return True


@pytest.mark.parametrize("seed", range(12))
def test_a_device_that_fails_anywhere_keeps_what_succeeded(seed: int) -> None:
    """Each success adds to a request's state; slots are fewer than requests."""
    order = random.Random(seed)
    model = parse_proto("""
        g (float[n,3] x, float[n,3] past) => (float[n,3] y, float[n,3] present) {
            present = Add (past, x)
            y = Relu (present)
        }
    """)
    with aioinfer.Core() as core:
        devices = MockDevices(1)
        core.register_plugin("MOCK", devices.make_plugin)
        network = core.load_network(model, "MOCK.0", {"STATE": {"past": "present"}})
        requests = [network.create_infer_request() for _ in range(4)]
        kept: list[np.ndarray] = [np.zeros((0, 3), np.float32) for _ in requests]
        for step in range(STEP_COUNT):
            doing, number = order.choice(DOINGS), order.randrange(4)
            if doing == "reset":
                requests[number].reset_state()
                kept[number] = np.zeros((0, 3), np.float32)
            elif doing == "set":
                kept[number] = np.full((2, 3), step, np.float32)
                set_state(requests[number], kept[number])
            else:
                started = order.sample(range(4), 3) if doing == "both" else [number]
                devices[0].stage_fault = (
                    (lambda stage: DeviceError("planted")) if doing == "fail" else None
                )
                x = np.full((2, 3), step, np.float32)
                for at in started:
                    requests[at].start_async({"x": x}, deadline_s=0 if doing == "late" else None)
                if doing == "cancel":
                    requests[number].cancel()
                finish(devices)
                for at in started:
                    try:
                        requests[at].wait()
                    except ENDED:
                        continue
                    kept[at] = (kept[at] if len(kept[at]) else np.zeros_like(x)) + x
            for request, array in zip(requests, kept, strict=True):
                np.testing.assert_array_equal(state_of(request), array)
