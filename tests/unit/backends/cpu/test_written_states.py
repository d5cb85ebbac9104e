"""States of fixed length on CPU: two memories take turns, and a run writes what is new."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import AioInferError, RequestCancelledError
from aioinfer.runtime.lowering.written_states import written_states
from aioinfer.runtime.tensors.turning_memory import TurnedArray
from onnx_text import parse, parse_proto
from unit.backends.states_in_place import CancelledAtItsEnd

CACHE = parse_proto("""
    g (float[n,4] x, int64[n,1] at, float[64,4] past) => (float[64,4] y, float[64,4] present) {
        present = ScatterND (past, at, x)
        y = Relu (present)
    }
""")
STATE = {"STATE": {"past": "present"}}


def kept_of(request: aioinfer.InferRequest) -> Any:
    kept = request.kept_states
    assert kept is not None
    return kept.values["past"]


def place_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def rows(*at: int, value: float) -> dict[str, np.ndarray]:
    x = np.full((len(at), 4), value, np.float32)
    return {"x": x, "at": np.array(at, np.int64).reshape(-1, 1)}


def test_two_memories_take_turns_and_hold_what_was_written(core: aioinfer.Core) -> None:
    with core.load_network(CACHE, "CPU", STATE) as network:
        request = network.create_infer_request()
        expected, places = np.zeros((64, 4), np.float32), set()
        order = np.random.default_rng(1)
        for step in range(1, 60):
            at = order.integers(-64, 64, size=order.integers(1, 4))
            expected[at] = step
            y = request.infer_sync(rows(*at, value=step))["y"]
            np.testing.assert_array_equal(y, expected)
            np.testing.assert_array_equal(request.query_state()[0].state, expected)
            if step > 2:
                places.add(place_of(kept_of(request)))
        assert len(places) == 2
        assert type(request.query_state()[0].state) is np.ndarray


def test_a_run_copies_the_rows_of_the_last_one_and_no_others(core: aioinfer.Core) -> None:
    """What another writes into the memory that is next, where no run has, is still there."""
    with core.load_network(CACHE, "CPU", STATE) as network:
        request = network.create_infer_request()
        for step in range(1, 4):
            request.infer_sync(rows(step, value=step))
        kept = kept_of(request)
        assert isinstance(kept, TurnedArray)
        assert kept.before is not None
        kept.before[0][60:] = 7
        request.infer_sync(rows(4, value=4))
        state = request.query_state()[0].state
        np.testing.assert_array_equal(state[:6, 0], [0, 1, 2, 3, 4, 0])
        np.testing.assert_array_equal(state[58:, 0], [0, 0, 7, 7, 7, 7])


@pytest.mark.parametrize("ending", ["stopped", "a bad index"])
def test_a_run_that_does_not_succeed_leaves_what_was_there(
    core: aioinfer.Core, ending: str
) -> None:
    with core.load_network(CACHE, "CPU", STATE) as network:
        request = network.create_infer_request()
        expected = np.zeros((64, 4), np.float32)
        for step in range(1, 30):
            if step % 3 == 0:
                _fail(network, request, ending)
                np.testing.assert_array_equal(request.query_state()[0].state, expected)
                continue
            expected[step] = step
            y = request.infer_sync(rows(step, value=step))["y"]
            np.testing.assert_array_equal(y, expected)


def _fail(network: aioinfer.ExecutableNetwork, request: aioinfer.InferRequest, ending: str) -> None:
    if ending == "a bad index":
        with pytest.raises(AioInferError, match="index"):
            request.infer_sync(rows(3, 64, value=np.nan))
        return
    run = network.make_run(rows(5, 6, value=np.nan), request=request)
    run.bindings.states = CancelledAtItsEnd(run)
    run.launch()
    with pytest.raises(RequestCancelledError):
        request.wait()


def test_requests_and_states_that_are_set_share_nothing(core: aioinfer.Core) -> None:
    with core.load_network(CACHE, "CPU", STATE) as network:
        requests = [network.create_infer_request() for _ in range(2)]
        given = np.full((64, 4), 5, np.float32)
        for request in requests:
            request.query_state()[0].state = given
        for step in range(1, 6):
            for number, request in enumerate(requests):
                request.infer_sync(rows(step, value=step + 10 * number))
        assert (given == 5).all()
        for number, request in enumerate(requests):
            state = request.query_state()[0].state
            np.testing.assert_array_equal(
                state[:7, 0], [5, *(step + 10 * number for step in range(1, 6)), 5]
            )
            request.reset_state()
            y = request.infer_sync(rows(0, value=1))["y"]
            assert y.sum() == 4


def test_without_a_request_each_run_is_by_itself(core: aioinfer.Core) -> None:
    with core.load_network(CACHE, "CPU") as network:
        request, past = network.create_infer_request(), np.zeros((64, 4), np.float32)
        for step in (1, 2):
            made = request.infer_sync({**rows(step, value=1), "past": past})["present"]
            assert made.sum() == 4
        assert not past.any()


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("present = ScatterND (past, at, x)", 1),
        ('present = ScatterND <reduction = "none"> (past, at, x)', 1),
        ('present = ScatterND <reduction = "add"> (past, at, x)', 0),
        ("more = Relu (past) present = ScatterND (more, at, x)", 0),
        ("wet = ScatterND (past, at, x) present = Relu (wet)", 0),
    ],
)
def test_only_writes_into_the_state_itself_are_done_in_turns(line: str, count: int) -> None:
    model = parse(
        f"g (float[n,4] x, int64[n,1] at, float[64,4] past) => (float[64,4] present) {{ {line} }}"
    )
    assert len(written_states(model.graph, {"past": "present"})) == count
