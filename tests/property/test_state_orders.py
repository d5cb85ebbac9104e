"""States in random orders of all that may happen to their runs, beside a model of numpy arrays."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.accelerator.queues.driver import DriverError, ErrorKind
from aioinfer.backends.opencl.plugin import OpenClPlugin
from aioinfer.errors import (
    DeadlineExceededError,
    DeviceError,
    RequestCancelledError,
    TensorError,
)
from aioinfer.runtime.tensors.roomed_array import RoomedArray
from aioinfer.testing import MockDevices
from onnx_text import parse_proto
from presence import skip_if_missing
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


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,REFERENCE"])
@pytest.mark.parametrize("seed", range(6))
def test_memory_that_grows_in_place_keeps_what_succeeded(seed: int, device: str) -> None:
    """Each success joins rows to a request's state; what fails has written behind it before."""
    order, fails = random.Random(seed), [False]
    proto = parse_proto("""
        g (float[2,n,3] x, float[2,m,3] past) => (float[2,k,3] y, float[2,k,3] present) {
            present = Concat <axis = 1> (past, x)
            negative = Neg (present)
            [behind] y = Abs (negative)
        }
    """)

    def behind(x: np.ndarray) -> np.ndarray:
        if fails[0]:
            raise ValueError("planted")
        return np.abs(x)

    with aioinfer.Core() as core:
        skip_if_missing(core, "CPU")
        abs_ = aioinfer.Extension("Abs", behind, infer_types=lambda given, _: [given[0]])
        core.add_extension(abs_, "CPU")
        core.add_extension(abs_, "REFERENCE")
        model = core.read_model(proto)
        model.node("behind").affinity = device.rpartition(",")[2]
        network = core.load_network(model, device, {"STATE": {"past": "present"}})
        requests = [network.create_infer_request() for _ in range(3)]
        kept = [np.zeros((2, 0, 3), np.float32) for _ in requests]
        for step in range(2 * STEP_COUNT):
            doing, number = order.choice(DOINGS), order.randrange(3)
            x = np.full((2, order.randint(0, 9), 3), -step, np.float32)
            if doing == "reset":
                requests[number].reset_state()
                kept[number] = np.zeros((2, 0, 3), np.float32)
            elif doing == "set":
                kept[number] = x
                set_state(requests[number], x)
            else:
                started = order.sample(range(3), 2) if doing == "both" else [number]
                fails[0] = doing == "fail"
                for at in started:
                    requests[at].start_async({"x": x}, deadline_s=0 if doing == "late" else None)
                if doing == "cancel":
                    requests[number].cancel()
                for at in started:
                    try:
                        requests[at].wait()
                    except (*ENDED, TensorError):
                        continue
                    kept[at] = np.concatenate([kept[at], x], 1)
                    states = requests[at].kept_states
                    assert states is not None
                    assert isinstance(states.values["past"], RoomedArray)
                    np.testing.assert_array_equal(requests[at].results["y"], np.abs(kept[at]))
                fails[0] = False
            for request, array in zip(requests, kept, strict=True):
                np.testing.assert_array_equal(state_of(request), array)
