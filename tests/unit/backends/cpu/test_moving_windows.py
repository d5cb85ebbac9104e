"""States of fixed length that move on: the first rows are cut off, and no other is copied."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.errors import RequestCancelledError
from aioinfer.runtime.lowering.growing_states import GrowingState, growing_states
from onnx_text import parse, parse_proto

CUT_BEFORE = """
    rest = Slice (past, first, end, axes)
    present = Concat <axis = 2> (rest, x)
    y = Add (present, one)
"""
CUT_AFTER = """
    whole = Concat <axis = 2> (past, x)
    present = Slice (whole, first, end, axes)
    sums = ReduceSum (whole, axes)
    y = Add (present, sums)
"""
WINDOWS = [CUT_BEFORE, CUT_AFTER]


def text(body: str, rows: int = 3, window: int = 40) -> str:
    return f"""
        g (float[2,3,{rows},4] x, float[2,3,{window},4] past)
        => (float[2,3,{window},4] y, float[2,3,{window},4] present)
        <int64[1] first = {{{rows}}}, int64[1] end = {{9223372036854775807}}, int64[1] axes = {{2}},
         float one = {{1}}> {{ {body} }}
    """


STATE = {"STATE": {"past": "present"}}


def items(count: int, rows: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(count)
    return [random.normal(size=(2, 3, rows, 4)).astype(np.float32) for _ in range(count)]


def kept(request: aioinfer.InferRequest) -> np.ndarray:
    """The array that the next run reads, and no copy of it."""
    states = request.kept_states
    assert states is not None
    array: np.ndarray = states.values["past"]
    return array


def place_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("body", WINDOWS)
def test_a_window_holds_the_latest_rows(core: aioinfer.Core, body: str) -> None:
    model = parse_proto(text(body))
    with (
        core.load_network(model, "REFERENCE", STATE) as plain,
        core.load_network(model, "CPU", STATE) as network,
    ):
        request, other = network.create_infer_request(), plain.create_infer_request()
        for x in items(60):
            expected = other.infer_sync({"x": x})["y"]
            np.testing.assert_allclose(
                request.infer_sync({"x": x})["y"], expected, rtol=1e-5, atol=1e-5
            )
        np.testing.assert_array_equal(request.query_state()[0].state, other.query_state()[0].state)


@pytest.mark.parametrize("body", WINDOWS)
def test_most_runs_write_behind_what_is_there(core: aioinfer.Core, body: str) -> None:
    with core.load_network(parse_proto(text(body)), "CPU", STATE) as network:
        request = network.create_infer_request()
        places = []
        for x in items(100):
            request.infer_sync({"x": x})
            places.append(place_of(kept(request)))
        steps = [new - old for old, new in pairwise(places)]
        assert steps.count(3 * 4 * 4) > 85, "three rows of four floats"


@pytest.mark.parametrize("body", WINDOWS)
def test_a_run_that_is_stopped_at_its_end_leaves_what_was_there(
    core: aioinfer.Core, body: str
) -> None:
    with core.load_network(parse_proto(text(body)), "CPU", STATE) as network:
        request = network.create_infer_request()
        expected = np.zeros((2, 3, 40, 4), np.float32)
        for number, x in enumerate(items(80)):
            if number % 3 == 1:
                _stop_one(network, request)
                np.testing.assert_array_equal(kept(request), expected)
            request.infer_sync({"x": x})
            expected = np.concatenate([expected, x], 2)[:, :, 3:]
            np.testing.assert_array_equal(kept(request), expected)


def _stop_one(network: aioinfer.ExecutableNetwork, request: aioinfer.InferRequest) -> None:
    """Cancel a run when all its steps have been computed, before its outcome is settled."""
    x = np.full((2, 3, 3, 4), np.nan, np.float32)
    run = network.make_run({"x": x}, request=request)
    states: Any = run.bindings.states
    take = states.take

    def take_and_cancel(results: dict[str, Any]) -> Any:
        wrong = take(results)
        run.cancel()
        return wrong

    states.take = take_and_cancel
    run.launch()
    with pytest.raises(RequestCancelledError):
        request.wait()


def test_an_exported_network_moves_its_windows_too(core: aioinfer.Core, tmp_path: Path) -> None:
    path = tmp_path / "window.blob"
    with core.load_network(parse_proto(text(CUT_AFTER)), "CPU", STATE) as network:
        network.export(path)
        request = network.create_infer_request()
        expected = [request.infer_sync({"x": x})["y"] for x in items(40)]
    with core.import_network(path, "CPU") as again:
        request = again.create_infer_request()
        for x, y in zip(items(40), expected, strict=True):
            np.testing.assert_array_equal(request.infer_sync({"x": x})["y"], y)


@pytest.mark.parametrize(
    ("body", "is_window"),
    [
        (CUT_BEFORE, True),
        (CUT_AFTER, True),
        ("whole = Concat <axis = 2> (x, past) present = Slice (whole, first, end, axes)", False),
        ("whole = Concat <axis = 2> (past, x) present = Slice (whole, zero, last, axes)", False),
        ("rest = Slice (past, zero, last, axes) present = Concat <axis = 2> (rest, x)", False),
        ("rest = Slice (past, first, end, axes) present = Concat <axis = 2> (x, rest)", False),
        ("rest = Slice (past, first, end, axes) present = Concat <axis=2> (rest, rest)", False),
    ],
)
def test_only_the_latest_rows_are_a_window(body: str, is_window: bool) -> None:
    header = (
        text("")
        .rsplit("{", 1)[0]
        .replace(" float one", "int64[1] zero = {0}, int64[1] last = {37}, float one")
    )
    model = parse(f"{header.replace('float[2,3,40,4] y, ', '')} {{ {body} }}")
    found = [item.state for item in growing_states(model.graph, {"past": "present"})]
    assert found == ([GrowingState(1, 0, 2, is_window=True)] if is_window else [])


@pytest.mark.parametrize("body", WINDOWS)
def test_windows_of_open_lengths_move_in_plans_that_are_replayed(
    core: aioinfer.Core, body: str
) -> None:
    model = parse_proto(text(body).replace("[2,3,", "[batch,3,").replace(",4]", ",width]"))
    with (
        core.load_network(model, "REFERENCE", STATE) as plain,
        core.load_network(model, "CPU", STATE) as network,
    ):
        for batch, width in ((1, 4), (2, 4), (3, 5), (5, 1), (2, 7)):
            request, other = network.create_infer_request(), plain.create_infer_request()
            random, places = np.random.default_rng(batch), []
            for _ in range(6):
                x = random.normal(size=(batch, 3, 3, width)).astype(np.float32)
                expected = other.infer_sync({"x": x})["y"]
                y = request.infer_sync({"x": x})["y"]
                np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
                places.append(place_of(kept(request)))
            assert np.diff(places).tolist() == [3 * width * 4] * 5
