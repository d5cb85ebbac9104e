"""State on every device: handed on, kept apart, reset, and as before where a run fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import ModelError, RequestCancelledError, TensorError
from .conformance_case import behaviour, expect, expect_equal, expect_error, load
from .conformance_models import F32, SampleModel, sample_node

if TYPE_CHECKING:
    from ..devices.core import Core

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
STATE = {"STATE": {"past": "present"}}
X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
STEP_COUNT = 20  # more than one plan is tried for, and memory grows more than once


@behaviour
def _a_run_starts_from_the_state_that_the_last_one_has_left(core: Core, device: str) -> None:
    with load(core, device, SUM, STATE) as network:
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
    with load(core, device, SUM, STATE) as network:
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
    with load(core, device, SUM, STATE) as network:
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
    with load(core, device, GROWING, STATE) as network:
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
    with load(core, device, GROWING, STATE) as network:
        request = network.create_infer_request()
        x = np.ones((2, 1, 3), np.float32)
        results = [request.infer_sync({"x": x * step})["y"] for step in range(STEP_COUNT)]
        for step, y in enumerate(results):
            expected = np.repeat(np.arange(step + 1, dtype=np.float32), 3).reshape(1, -1, 3)
            expect_equal(y, np.concatenate([expected] * 2), f"'y' of step {step} at the end")


@behaviour
def _a_run_that_does_not_succeed_leaves_the_state_as_before(core: Core, device: str) -> None:
    with load(core, device, GROWING, STATE) as network:
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
    with load(core, device, SUM, STATE) as network:
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
    with load(core, device, SUM):
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
