"""State on every device: handed on, kept apart, reset, and as before where a run fails."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING
from unittest import SkipTest

import numpy as np

from ...errors import (
    DeadlineExceededError,
    ModelError,
    NotSupportedError,
    PropertyError,
    RequestCancelledError,
    TensorError,
)
from .conformance_case import behaviour, expect, expect_equal, expect_error, load
from .conformance_models import F32, I64, SampleModel, sample_node

if TYPE_CHECKING:
    from ..devices.core import Core
    from ..network.executable_network import ExecutableNetwork
    from ..network.infer_request import InferRequest

SUM = SampleModel(
    "running_sum",
    {"x": (F32, ("n", 3)), "past": (F32, ("n", 3))},
    {"y": (F32, ("n", 3)), "present": (F32, ("n", 3))},
    (sample_node("Add", "past x", "present"), sample_node("Relu", "present", "y")),
    (),
)
GROWING = SampleModel(
    "growing",
    {"x": (F32, (2, "new", 3)), "past": (F32, (2, "before", 3))},
    {"y": (F32, (2, "after", 3)), "present": (F32, (2, "after", 3))},
    (
        sample_node("Concat", "past x", "present", axis=1),
        sample_node("Relu", "present", "y"),
    ),
    (),
)
LAST = SampleModel(
    "last_input",
    {"x": (F32, (2, 3)), "past": (F32, (2, 3))},
    {"y": (F32, (2, 3)), "present": (F32, (2, 3))},
    (sample_node("Relu", "past", "y"), sample_node("Identity", "x", "present")),
    (),
)
WRITTEN = SampleModel(
    "written_rows",
    {"x": (F32, ("n", 3)), "at": (I64, ("n", 1)), "past": (F32, (8, 3))},
    {"y": (F32, (8, 3)), "present": (F32, (8, 3))},
    (sample_node("ScatterND", "past at x", "present"), sample_node("Relu", "present", "y")),
    (),
)
STATE = {"STATE": {"past": "present"}}
X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
STEP_COUNT = 20  # more than one plan is tried for, and memory grows more than once


def load_stateful(core: Core, device: str, sample: SampleModel) -> ExecutableNetwork:
    """Load a sample whose requests keep a state; SkipTest where the device takes none, as BATCH.

    A device that takes none says so, names the property, and which device to load it on.
    """
    try:
        return load(core, device, sample, STATE)
    except NotSupportedError as error:
        text = str(error)
        expect("STATE" in text, f"the refusal names STATE, and is: {text}")
        expect("load it on" in text, f"the refusal says where states are kept, and is: {text}")
        raise SkipTest(text) from error


@behaviour
def _a_run_starts_from_the_state_that_the_last_one_has_left(core: Core, device: str) -> None:
    with load_stateful(core, device, SUM) as network:
        expect([port.name for port in network.inputs] == ["x"], "no input is state")
        expect([port.name for port in network.outputs] == ["y"], "no output is state")
        request = network.create_infer_request()
        (state,) = request.query_state()
        expect_equal(state.state, np.zeros((0, 3), np.float32), "the state before the first run")
        for count in range(1, 5):
            results = request.infer_sync({"x": X})
            expect_equal(results, {"y": results["y"]}, "what a run returns")
            expect_equal(results["y"], np.maximum(count * X, 0), f"'y' of run {count}")
            expect_equal(state.state, count * X, f"the state after run {count}")
        request.reset_state()
        expect_equal(request.infer_sync({"x": X})["y"], np.maximum(X, 0), "'y' after reset_state")


@behaviour
def _a_state_that_is_set_is_copied_and_read(core: Core, device: str) -> None:
    with load_stateful(core, device, SUM) as network:
        request = network.create_infer_request()
        (state,) = request.query_state()
        given = 10 * X
        state.state = given
        given[:] = np.nan
        expect_equal(request.infer_sync({"x": X})["y"], np.maximum(11 * X, 0), "'y'")
        seen = state.state
        seen[:] = np.nan
        expect_equal(state.state, 11 * X, "the state, whose copy was written")
        state.reset()
        expect_equal(request.infer_sync({"x": X})["y"], np.maximum(X, 0), "'y' after reset")


@behaviour
def _two_requests_share_no_state(core: Core, device: str) -> None:
    with load_stateful(core, device, SUM) as network:
        requests = [network.create_infer_request() for _ in range(8)]
        for step in range(1, 5):
            for number, request in enumerate(requests):
                request.start_async({"x": number * X})
            for number, request in enumerate(requests):
                request.wait()
                expected = np.maximum(step * number * X, 0)
                expect_equal(request.results["y"], expected, f"'y' of request {number}")


@behaviour
def _a_state_grows_by_what_each_run_adds(core: Core, device: str) -> None:
    with load_stateful(core, device, GROWING) as network:
        request = network.create_infer_request()
        (state,) = request.query_state()
        parts = [np.full((2, 1 + step % 2, 3), step, np.float32) for step in range(STEP_COUNT)]
        for step, part in enumerate(parts):
            expected = np.concatenate(parts[: step + 1], axis=1)
            expect_equal(request.infer_sync({"x": part})["y"], expected, f"'y' of step {step}")
        expect_equal(state.state, np.concatenate(parts, axis=1), "the state at the end")
        state.state = parts[1]
        expected = np.concatenate([parts[1], parts[2]], axis=1)
        expect_equal(request.infer_sync({"x": parts[2]})["y"], expected, "'y' after it was set")


@behaviour
def _results_of_a_growing_state_stay_as_they_were(core: Core, device: str) -> None:
    with load_stateful(core, device, GROWING) as network:
        request = network.create_infer_request()
        x = np.ones((2, 1, 3), np.float32)
        results = [request.infer_sync({"x": x * step})["y"] for step in range(STEP_COUNT)]
        for step, y in enumerate(results):
            expected = np.repeat(np.arange(step + 1, dtype=np.float32), 3).reshape(1, -1, 3)
            expect_equal(y, np.concatenate([expected] * 2), f"'y' of step {step} at the end")


@behaviour
def _a_run_that_does_not_succeed_leaves_the_state_as_before(core: Core, device: str) -> None:
    with load_stateful(core, device, GROWING) as network:
        request = network.create_infer_request()
        (state,) = request.query_state()
        kept: list[np.ndarray] = []
        for step in range(STEP_COUNT):
            x = np.full((2, 1, 3), step, np.float32)
            request.start_async({"x": x})
            if step % 2:
                request.cancel()
            try:
                request.wait()
            except RequestCancelledError:
                x = x[:, :0]
            kept.append(x)
            expect_equal(state.state, np.concatenate(kept, axis=1), f"the state after run {step}")


@behaviour
def _a_state_is_not_given_to_a_run(core: Core, device: str) -> None:
    with load_stateful(core, device, SUM) as network:
        request = network.create_infer_request()
        inputs = {"x": X, "past": X}
        error = expect_error(TensorError, lambda: request.infer_sync(inputs), "giving a state")
        expect("query_state" in str(error), f"the error says how a state is set, not {error}")
        (state,) = request.query_state()

        def set_state(array: np.ndarray) -> None:
            state.state = array

        expect_error(TensorError, lambda: set_state(X[0]), "setting a state of another rank")
        wrong = X.astype(np.int64)
        expect_error(TensorError, lambda: set_state(wrong), "setting a state of another type")


@behaviour
def _the_models_metadata_may_name_its_state(core: Core, device: str) -> None:
    with load_stateful(core, device, SUM):
        pass  # the device can run it
    model = core.read_model(SUM.proto().SerializeToString())
    model.metadata["aioinfer.state"] = '{"past": "present"}'
    with core.load_network(model, device) as network:
        request = network.create_infer_request()
        for count in (1, 2):
            expect_equal(request.infer_sync({"x": X})["y"], np.maximum(count * X, 0), "'y'")
    with core.load_network(model, device, {"STATE": {}}) as network:
        expect(len(network.inputs) == 2, "STATE says more than the metadata")
    model.metadata["aioinfer.state"] = '{"passed": "present"}'
    expect_error(ModelError, lambda: core.load_network(model, device), "metadata of another model")


@behaviour
def _a_state_keeps_the_rows_that_runs_have_written(core: Core, device: str) -> None:
    with load_stateful(core, device, WRITTEN) as network:
        request = network.create_infer_request()
        (state,) = request.query_state()
        expected = np.zeros((8, 3), np.float32)
        for step in range(STEP_COUNT):
            at = np.array([[step % 8], [step * 3 % 7]][: 1 + step % 2], np.int64)
            x = np.full((len(at), 3), step - 5, np.float32)
            request.start_async({"x": x, "at": at}, deadline_s=0 if step % 5 == 4 else None)
            if _has_succeeded(request):
                expected[at[:, 0]] = x
                expect_equal(request.results["y"], np.maximum(expected, 0), f"'y' of run {step}")
            expect_equal(state.state, expected, f"the state after run {step}")


@behaviour
def _a_state_shares_no_memory_with_what_callers_give_and_get(core: Core, device: str) -> None:
    with load_stateful(core, device, LAST) as network:
        request = network.create_infer_request()
        given = np.abs(X)
        results = [request.infer_sync({"x": given})["y"]]
        given[:] = np.nan
        results.append(request.infer_sync({"x": 2 * np.abs(X)})["y"])
        expect_equal(results[1], np.abs(X), "what was given to the first run, overwritten since")
        results[1][:] = np.nan
        expect_equal(request.infer_sync({"x": X})["y"], 2 * np.abs(X), "'y' of the third run")
        expect_equal(results[0], np.zeros_like(X), "'y' of the first run")


@behaviour
def _a_state_has_no_location_and_other_outputs_may_have_one(core: Core, device: str) -> None:
    located = {**STATE, "OUTPUT_LOCATION": {"present": "DEVICE"}}
    with load_stateful(core, device, SUM):
        pass  # the device can run it
    expect_error(
        PropertyError, lambda: load(core, device, SUM, located), "a location for what is no result"
    )
    with load(core, device, SUM, {**STATE, "OUTPUT_LOCATION": {"y": "DEVICE"}}) as network:
        request = network.create_infer_request()
        kept = [request.infer_sync({"x": X})["y"] for _ in range(4)]
        for count, y in enumerate(kept, 1):
            expect_equal(np.asarray(y), np.maximum(count * X, 0), f"'y' of run {count}, kept")


@behaviour
def _runs_cancels_deadlines_and_resets_in_any_order_leave_what_succeeded(
    core: Core, device: str
) -> None:
    with load_stateful(core, device, GROWING) as network:
        for seed in range(4):
            _mix(network, random.Random(seed))


def _mix(network: ExecutableNetwork, order: random.Random) -> None:
    """Do what callers may do with three requests, in an order of the seed's, beside a model."""
    requests = [network.create_infer_request() for _ in range(3)]
    kept = [np.zeros((2, 0, 3), np.float32) for _ in requests]
    for step in range(40):
        number = order.randrange(3)
        request, past = requests[number], kept[number]
        (state,) = request.query_state()
        doing = order.choice(["run", "run", "run", "cancel", "late", "reset", "set", "read"])
        what = f"request {number} after step {step} ({doing})"
        if doing in ("run", "cancel", "late"):
            x = np.full((2, order.randint(1, 3), 3), step, np.float32)
            others = [at for at in range(3) if at != number and order.random() < 0.5]
            for at in (number, *others):
                requests[at].start_async({"x": x}, deadline_s=0 if doing == "late" else None)
            if doing == "cancel":
                request.cancel()
            for at in (number, *others):
                if _has_succeeded(requests[at]):
                    kept[at] = np.concatenate([kept[at], x], axis=1)
                    expect_equal(requests[at].results["y"], np.maximum(kept[at], 0), what)
        elif doing == "reset":
            request.reset_state()
            kept[number] = past[:, :0]
        elif doing == "set":
            kept[number] = np.full((2, order.randrange(70), 3), -step, np.float32)
            state.state = kept[number]
        expect_equal(state.state, kept[number], what)
    for number, request in enumerate(requests):
        (state,) = request.query_state()
        expect_equal(state.state, kept[number], f"the state of request {number} at the end")


def _has_succeeded(request: InferRequest) -> bool:
    try:
        request.wait()
    except (RequestCancelledError, DeadlineExceededError):
        return False
    return True
