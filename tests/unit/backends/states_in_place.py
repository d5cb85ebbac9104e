"""States that grow, move on or are written in part, on one device: what its tests share.

Each device has to copy no more of a state at a late step than at an early one: counted by what the
runs say that they have copied, and looked at where memory lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import RequestCancelledError
from onnx_text import parse_proto

Array = np.ndarray[Any, Any]
STATE = {"STATE": {"past": "present"}, "PERF_COUNT": True}


@dataclass(frozen=True)
class Form:
    """A model with one state, what numpy makes of it, and how many bytes a step copies at most.

    The last is without the steps at which memory moves, which are ``most_moves`` of the 80.
    """

    text: str
    step: Callable[[Array, dict[str, Array]], Array]
    inputs: Callable[[int], dict[str, Array]]
    begins: tuple[int, ...]
    step_bytes: int
    most_moves: int


def _rows(step: int) -> dict[str, Array]:
    random = np.random.default_rng(step)
    return {"x": random.normal(size=(2, 3, 1 + step % 3, 4)).astype(np.float32)}


def _three_rows(step: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(step).normal(size=(2, 3, 3, 4)).astype(np.float32)}


def _places(step: int) -> dict[str, Array]:
    random = np.random.default_rng(step)
    at = random.permutation(64)[:2].reshape(2, 1)
    return {"x": random.normal(size=(2, 4)).astype(np.float32), "at": at}


def _joined(past: Array, given: dict[str, Array]) -> Array:
    return np.concatenate([past, given["x"]], 2)


def _moved(past: Array, given: dict[str, Array]) -> Array:
    return np.concatenate([past, given["x"]], 2)[:, :, 3:]


def _written(past: Array, given: dict[str, Array]) -> Array:
    made = past.copy()
    made[given["at"][:, 0]] = given["x"]
    return made


_WINDOW = """
    g (float[2,3,3,4] x, float[2,3,40,4] past) => (float[2,3,40,4] y, float[2,3,40,4] present)
    <int64[1] first = {{3}}, int64[1] end = {{9223372036854775807}}, int64[1] axes = {{2}}> {{
        {body}
        y = Abs (present)
    }}
"""
FORMS = {
    "grows": Form(
        """
        g (float[2,3,new,4] x, float[2,3,m,4] past) => (float[2,3,k,4] y, float[2,3,k,4] present) {
            present = Concat <axis = 2> (past, x)
            y = Abs (present)
        }
        """,
        _joined,
        _rows,
        (2, 3, 0, 4),
        0,
        6,
    ),
    "is cut before": Form(
        _WINDOW.format(
            body="rest = Slice (past, first, end, axes) present = Concat <axis = 2> (rest, x)"
        ),
        _moved,
        _three_rows,
        (2, 3, 40, 4),
        0,
        12,
    ),
    "is cut after": Form(
        _WINDOW.format(
            body="whole = Concat <axis = 2> (past, x) present = Slice (whole, first, end, axes)"
        ),
        _moved,
        _three_rows,
        (2, 3, 40, 4),
        0,
        12,
    ),
    "is written": Form(
        """
        g (float[n,4] x, int64[n,1] at, float[64,4] past) => (float[64,4] y, float[64,4] present) {
            present = ScatterND (past, at, x)
            y = Abs (present)
        }
        """,
        _written,
        _places,
        (64, 4),
        2 * 4 * 4,
        2,
    ),
}


def load(core: aioinfer.Core, form: Form, device: str) -> aioinfer.ExecutableNetwork:
    precision = {"INFERENCE_PRECISION_HINT": "f32"} if device == "STANDIN" else {}
    return core.load_network(parse_proto(form.text), device, {**STATE, **precision})


def state_of(request: aioinfer.InferRequest) -> Array:
    (state,) = request.query_state()
    return state.state


def moved_bytes(request: aioinfer.InferRequest, device: str) -> int:
    """What the last run has copied of its state, on the device that keeps it."""
    kind = "device" if device in ("OPENCL", "STANDIN") else "host"
    return request.profiling().copied_bytes.get(kind, 0)


def check_counts(core: aioinfer.Core, form: Form, device: str) -> None:
    """What a step copies does not grow, but for the few that move memory."""
    with load(core, form, device) as network:
        request, expected = network.create_infer_request(), np.zeros(form.begins, np.float32)
        counts = []
        for step in range(80):
            given = form.inputs(step)
            expected = form.step(expected, given)
            np.testing.assert_array_equal(request.infer_sync(given)["y"], np.abs(expected))
            counts.append(moved_bytes(request, device))
        np.testing.assert_array_equal(state_of(request), expected)
        moves = [count for count in counts if count > form.step_bytes]
        assert len(moves) <= form.most_moves, counts


def check_failures(core: aioinfer.Core, form: Form, device: str) -> None:
    """A run that is stopped when its device is done leaves the state as it was."""
    with load(core, form, device) as network:
        request, expected = network.create_infer_request(), np.zeros(form.begins, np.float32)
        for step in range(40):
            given = form.inputs(step)
            if step % 3 == 1:
                spoilt = {**given, "x": np.full_like(given["x"], np.nan)}
                run = network.make_run(spoilt, request=request)
                run.bindings.states = CancelledAtItsEnd(run)
                run.launch()
                with pytest.raises(RequestCancelledError):
                    request.wait()
                np.testing.assert_array_equal(state_of(request), expected)
            expected = form.step(expected, given)
            np.testing.assert_array_equal(request.infer_sync(given)["y"], np.abs(expected))
        np.testing.assert_array_equal(state_of(request), expected)


class CancelledAtItsEnd:
    """The states of a run that is cancelled when its device is done."""

    def __init__(self, run: Any) -> None:
        self._run, self._states = run, run.bindings.states

    def take(self, results: dict[str, Any]) -> Any:
        wrong = self._states.take(results)
        self._run.cancel()
        return wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._states, name)


def check_requests(core: aioinfer.Core, form: Form, device: str) -> None:
    """Requests in turns, some reset and some set, keep to themselves; so do given arrays."""
    with load(core, form, device) as network:
        requests = [network.create_infer_request() for _ in range(3)]
        expected = [np.zeros(form.begins, np.float32) for _ in requests]
        begins = (*form.begins[:-2], max(1, form.begins[-2]), form.begins[-1])
        given_states = []
        for step in range(60):
            for request in requests:
                request.start_async(form.inputs(step))
            for number, request in enumerate(requests):
                request.wait()
                expected[number] = form.step(expected[number], form.inputs(step))
                np.testing.assert_array_equal(request.results["y"], np.abs(expected[number]))
            if step % 7 == 3:
                requests[0].reset_state()
                expected[0] = np.zeros(form.begins, np.float32)
            if step % 11 == 5:
                given = np.full(begins, step, np.float32)
                given_states.append((given, step))
                for number in (1, 2):
                    requests[number].query_state()[0].state = given
                    expected[number] = given.copy()
        for given, step in given_states:
            assert (given == step).all()
        for request, array in zip(requests, expected, strict=True):
            np.testing.assert_array_equal(state_of(request), array)


CHECKS = {
    "copies": check_counts,
    "failures": check_failures,
    "requests": check_requests,
}
