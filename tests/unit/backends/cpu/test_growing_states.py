"""States that grow on CPU: what was there is not copied, and is never written again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.cpu.plans.operand_layout import Layout
from aioinfer.backends.cpu.plans.rooms import growing_layout
from aioinfer.errors import RequestCancelledError
from aioinfer.runtime.graph import DType
from aioinfer.runtime.lowering.growing_states import (
    GrowingState,
    growing_states,
    shape_with_room,
)
from aioinfer.runtime.tensors.roomed_array import RoomedArray
from onnx_text import parse, parse_proto

DECODER = """
    g (float[batch,new,8] x, float[batch,2,past,4] keys, float[batch,2,past,4] values)
    => (float[batch,new,8] y, float[batch,2,total,4] all_keys, float[batch,2,total,4] all_values)
    <int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}> {
        rows = Reshape (x, heads)
        turned = Transpose <perm = [0, 2, 1, 3]> (rows)
        halves = Tanh (turned)
        all_keys = Concat <axis = 2> (keys, turned)
        all_values = Concat <axis = -2> (values, halves)
        across = Transpose <perm = [0, 1, 3, 2]> (all_keys)
        scores = MatMul (turned, across)
        weights = Softmax <axis = -1> (scores)
        mixed = MatMul (weights, all_values)
        back = Transpose <perm = [0, 2, 1, 3]> (mixed)
        y = Reshape (back, flat)
    }
"""
PAIRS = {"keys": "all_keys", "values": "all_values"}


def inputs(count: int, batch: int = 2) -> list[np.ndarray]:
    random = np.random.default_rng(count)
    shapes = [(batch, 1 + step % 3, 8) for step in range(count)]
    return [random.normal(size=shape).astype(np.float32) for shape in shapes]


def memory_of(request: aioinfer.InferRequest) -> dict[str, np.ndarray]:
    """The arrays that the next run reads, and not copies of them."""
    kept = request.kept_states
    assert kept is not None
    return dict(kept.values)


def place_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("device", ["CPU", "HETERO:CPU,REFERENCE"])
def test_a_decoder_gives_what_it_gives_where_callers_hand_on_its_past(
    core: aioinfer.Core, device: str
) -> None:
    model = parse_proto(DECODER)
    with (
        core.load_network(model, "REFERENCE") as plain,
        core.load_network(model, device, {"STATE": PAIRS}) as network,
    ):
        request, other = network.create_infer_request(), plain.create_infer_request()
        past: dict[str, Any] = {name: np.zeros((2, 2, 0, 4), np.float32) for name in PAIRS}
        for x in inputs(50):
            expected = other.infer_sync({"x": x, **past})
            past = {name: expected[made] for name, made in PAIRS.items()}
            np.testing.assert_allclose(
                request.infer_sync({"x": x})["y"], expected["y"], rtol=1e-4, atol=1e-6
            )
        for state in request.query_state():
            np.testing.assert_allclose(state.state, past[state.name], rtol=1e-4, atol=1e-6)


def test_most_runs_write_behind_what_is_there(core: aioinfer.Core) -> None:
    with core.load_network(parse_proto(DECODER), "CPU", {"STATE": PAIRS}) as network:
        request = network.create_infer_request()
        places = []
        for x in inputs(200):
            request.infer_sync({"x": x})
            places.append(place_of(memory_of(request)["keys"]))
        moves = sum(old != new for old, new in pairwise(places))
        assert moves < 10, "memory moves with each half that a state has grown, and not more often"


def test_a_run_that_is_stopped_behind_its_join_leaves_what_was_there(core: aioinfer.Core) -> None:
    with core.load_network(parse_proto(DECODER), "CPU", {"STATE": PAIRS}) as network:
        request = network.create_infer_request()
        for x in inputs(4):
            request.infer_sync({"x": x})
        before = {name: array.copy() for name, array in memory_of(request).items()}
        run = network.make_run({"x": np.full((2, 2, 8), np.nan, np.float32)}, request=request)
        _stop_at_the_end(run)
        run.launch()
        with pytest.raises(RequestCancelledError):
            request.wait()
        after = memory_of(request)
        for name, array in before.items():
            np.testing.assert_array_equal(after[name], array)
        x = inputs(1)[0]
        request.infer_sync({"x": x})
        for name, array in memory_of(request).items():
            np.testing.assert_array_equal(array[:, :, : before[name].shape[2]], before[name])
            assert np.isfinite(array).all()


def _stop_at_the_end(run: Any) -> None:
    """Cancel a run when all its steps have been computed, before its outcome is settled."""
    take = run.bindings.states.take

    def take_and_cancel(results: dict[str, Any]) -> Any:
        wrong = take(results)
        run.cancel()
        return wrong

    run.bindings.states = _Taking(run.bindings.states, take_and_cancel)


class _Taking:
    def __init__(self, states: Any, take: Any) -> None:
        self._states, self.take = states, take

    def __getattr__(self, name: str) -> Any:
        return getattr(self._states, name)


def test_a_state_that_is_set_is_never_written(core: aioinfer.Core) -> None:
    with core.load_network(parse_proto(DECODER), "CPU", {"STATE": PAIRS}) as network:
        request, other = network.create_infer_request(), network.create_infer_request()
        wide = np.zeros((2, 2, 64, 4), np.float32)
        for state in (*request.query_state(), *other.query_state()):
            state.state = wide[:, :, :8]
        x = np.ones((2, 1, 8), np.float32)
        answers = [made.infer_sync({"x": x * step})["y"] for step in (1, 2) for made in (request,)]
        assert not wide.any()
        np.testing.assert_array_equal(other.infer_sync({"x": x})["y"], answers[0])


def test_a_state_in_another_precision_grows_by_copies(core: aioinfer.Core) -> None:
    config = {"STATE": PAIRS, "INFERENCE_PRECISION_HINT": "bf16"}
    try:
        network = core.load_network(parse_proto(DECODER), "CPU", config)
    except aioinfer.errors.PropertyError as refused:
        pytest.skip(f"this processor has no bf16: {refused}")
    with network:
        request = network.create_infer_request()
        kept = np.zeros((2, 2, 0, 4), np.float32)
        for x in inputs(8):
            request.infer_sync({"x": x})
            keys = memory_of(request)["keys"]
            np.testing.assert_array_equal(keys[:, :, : kept.shape[2]], kept)
            kept = keys.copy()


@pytest.mark.parametrize(
    ("line", "axis"),
    [
        ("present = Concat <axis = 1> (past, x)", 1),
        ("present = Concat <axis = -1> (past, x)", 1),
        ("present = Concat <axis = 1> (past, x, x)", 1),
        ("present = Concat <axis = 1> (x, past)", None),
        ("present = Concat <axis = 1> (past, past)", None),
        ("present = Add (past, x)", None),
        ("moved = Relu (past) present = Concat <axis = 1> (moved, x)", None),
    ],
)
def test_only_a_join_behind_the_state_grows_in_place(line: str, axis: int | None) -> None:
    model = parse(f"g (float[2,n] x, float[2,m] past) => (float[2,k] present) {{ {line} }}")
    found = growing_states(model.graph, {"past": "present"})
    assert [item.state for item in found] == ([] if axis is None else [GrowingState(1, 0, axis)])


def test_the_rows_of_a_head_lie_together_with_room_behind_them() -> None:
    for length in (0, 1, 5, 32):
        layout = growing_layout(Layout.plain((2, 3, length, 7), DType.FLOAT32), 2)
        assert layout.strides == (3 * 32 * 7, 32 * 7, 7, 1)
    assert growing_layout(Layout.plain((2, 33), DType.FLOAT32), 1).strides == (48, 1)
    assert growing_layout(Layout.plain((33, 2), DType.FLOAT32), 0).strides == (2, 1)


def test_room_is_half_as_much_again_and_no_more() -> None:
    rooms = {shape_with_room((4, length), 1)[1] for length in range(1, 100_000)}
    assert len(rooms) < 25
    for length in (1, 32, 33, 1000, 65_537, 10**12):
        (_, room) = shape_with_room((4, length), 1)
        assert length <= room <= max(32, length * 3 // 2)


def test_a_run_that_goes_on_unnoticed_shares_no_memory_with_the_next(core: aioinfer.Core) -> None:
    with core.load_network(parse_proto(DECODER), "CPU", {"STATE": PAIRS}) as network:
        request, other = network.create_infer_request(), network.create_infer_request()
        first, last = inputs(2)
        for each in (request, other):
            each.infer_sync({"x": first})
        kept, before = request.kept_states, memory_of(request)
        assert kept is not None
        kept.begin().part()
        for name, array in memory_of(request).items():
            np.testing.assert_array_equal(array, before[name])
            assert not np.shares_memory(array, before[name])
        expected = other.infer_sync({"x": last})["y"]
        np.testing.assert_array_equal(request.infer_sync({"x": last})["y"], expected)


def test_what_is_made_of_a_state_never_stands_for_its_memory(core: aioinfer.Core) -> None:
    """Rows behind a part of a state are the state's own, and no room to write into."""
    with core.load_network(parse_proto(DECODER), "CPU", {"STATE": PAIRS}) as network:
        request, other = network.create_infer_request(), network.create_infer_request()
        for x in inputs(9):
            request.infer_sync({"x": x})
        kept, theirs = request.kept_states, other.kept_states
        assert kept is not None
        assert theirs is not None
        before = {name: array.copy() for name, array in kept.values.items()}
        for name, array in kept.values.items():
            assert isinstance(array, RoomedArray)
            assert array.memory is not None
            part = array[:, :, :4]
            assert part.copy().memory is part.memory is None
            theirs.values[name] = part
        for x in inputs(9):
            other.infer_sync({"x": x})
        for name, array in kept.values.items():
            np.testing.assert_array_equal(array, before[name])
