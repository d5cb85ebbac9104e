"""Caches of fixed length that TensorScatter writes: as ONNX says, and as states in place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import aioinfer
from aioinfer.errors import TensorError
from aioinfer.runtime.tensors.turning_memory import TurnedArray
from onnx_text import parse_proto

STATE = {"STATE": {"past": "present"}}
LENGTH = 12


def cache(mode: str, axis: int, new: str = "n") -> onnx.ModelProto:
    shape = f"2,3,{LENGTH},4" if axis == -2 else f"2,{LENGTH},3,4"
    rows = f"2,3,{new},4" if axis == -2 else f"2,{new},3,4"
    text = f"""
        g (float[{rows}] x, int64[2] at, float[{shape}] past)
        => (float[{shape}] y, float[{shape}] present) {{
            present = TensorScatter <axis = {axis}, mode = "{mode}"> (past, x, at)
            y = Relu (present)
        }}
    """
    return parse_proto(text, 24, ir_version=13)


CACHES = pytest.mark.parametrize(
    ("mode", "axis"), [("linear", -2), ("linear", 1), ("circular", -2), ("circular", 1)]
)


def steps(mode: str, axis: int, count: int = 40) -> list[dict[str, np.ndarray]]:
    random, found = np.random.default_rng(count), []
    for _ in range(count):
        rows = int(random.integers(1, 4))
        most = LENGTH - rows + 1 if mode == "linear" else 3 * LENGTH
        x = random.normal(size=(2, 3, rows, 4)).astype(np.float32)
        at = random.integers(0, most, size=2)
        found.append({"x": x if axis == -2 else np.ascontiguousarray(x.swapaxes(1, 2)), "at": at})
    return found


def written(past: np.ndarray, step: dict[str, np.ndarray], axis: int) -> np.ndarray:
    """Write row for row, circularly."""
    made = past.copy()
    seen = made if axis == 1 else made.swapaxes(1, 2)
    x = step["x"] if axis == 1 else step["x"].swapaxes(1, 2)
    for sequence, start in enumerate(step["at"]):
        for row in range(x.shape[1]):
            seen[sequence, (start + row) % LENGTH] = x[sequence, row]
    return made


@CACHES
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_a_cache_holds_what_was_written(
    core: aioinfer.Core, device: str, mode: str, axis: int
) -> None:
    with core.load_network(cache(mode, axis), device, STATE) as network:
        request = network.create_infer_request()
        (state,) = request.query_state()
        expected, places = state.state, set()
        for step in steps(mode, axis):
            expected = written(expected, step, axis)
            y = request.infer_sync(step)["y"]
            np.testing.assert_array_equal(y, np.maximum(expected, 0))
            np.testing.assert_array_equal(state.state, expected)
            kept = request.kept_states
            assert kept is not None
            array = kept.values["past"]
            assert isinstance(array, TurnedArray)
            places.add(array.__array_interface__["data"][0])
        assert len(places) <= 3, "two that take turns, after the first"


@CACHES
def test_without_state_a_cache_is_copied(core: aioinfer.Core, mode: str, axis: int) -> None:
    with core.load_network(cache(mode, axis), "CPU") as network:
        request = network.create_infer_request()
        past = np.zeros((2, 3, LENGTH, 4) if axis == -2 else (2, LENGTH, 3, 4), np.float32)
        for step in steps(mode, axis, 10):
            before = past.copy()
            made = request.infer_sync({**step, "past": past})["present"]
            np.testing.assert_array_equal(past, before)
            past = written(past, step, axis)
            np.testing.assert_array_equal(made, past)


@pytest.mark.parametrize("at", [[-1, 0], [0, LENGTH]])
@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_a_place_outside_is_refused_and_leaves_the_cache(
    core: aioinfer.Core, device: str, at: list[int]
) -> None:
    with core.load_network(cache("linear", -2), device, STATE) as network:
        request = network.create_infer_request()
        expected = np.zeros((2, 3, LENGTH, 4), np.float32)
        for step in steps("linear", -2, 12):
            expected = written(expected, step, -2)
            request.infer_sync(step)
            with pytest.raises(TensorError):
                request.infer_sync({"x": step["x"], "at": np.array(at)})
            np.testing.assert_array_equal(request.query_state()[0].state, expected)


def test_an_exported_cache_is_written_too(core: aioinfer.Core, tmp_path: Path) -> None:
    path = tmp_path / "cache.blob"
    model = cache("circular", -2, "2")
    given = [{**step, "x": np.ones((2, 3, 2, 4), np.float32)} for step in steps("circular", -2)]
    with core.load_network(model, "CPU", STATE) as network:
        network.export(path)
        request = network.create_infer_request()
        expected = [request.infer_sync(step)["y"] for step in given]
    with core.import_network(path, "CPU") as again:
        request = again.create_infer_request()
        for step, y in zip(given, expected, strict=True):
            np.testing.assert_array_equal(request.infer_sync(step)["y"], y)
