"""Loops without an iteration: their empty results have the lengths of the run's inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.errors import TensorError
from onnx_text import parse_proto

LOOP = """g (int64 n, float[A,B] x) => (float[K,A,B] y, float[A,B] last, float[A,B] total) {
    go = Constant<value = bool {1}>()
    zero = Constant<value_ints = [0]>()
    last, y = Loop(n, go, x) <
        body = b (int64 i, bool c, float[A,B] s) => (bool d, float[A,B] t, float[A,B] item) {
            d = Identity(c)
            t = Add(s, x)
            item = Identity(x)
        }
    >
    sums = ReduceSum<keepdims = 0>(y, zero)
    total = Add(sums, x)
}"""

SCAN = """g (float[L,A] items, float[A,B] x) => (float[A,K,B] y, float[A,B] total) {
    one = Constant<value_ints = [1]>()
    y = Scan(items) <
        num_scan_inputs = 1, scan_output_axes = [1],
        body = b (float[A] item) => (float[A,B] made) {
            column = Unsqueeze(item, one)
            made = Add(column, x)
        }
    >
    sums = ReduceSum<keepdims = 0>(y, one)
    total = Add(sums, x)
}"""


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("shape", [(2, 3), (1, 5), (4, 0)])
@pytest.mark.parametrize("turns", [0, 2])
def test_what_no_iteration_made_has_the_lengths_of_the_run(
    shape: tuple[int, ...], turns: int, device: str, core: Core
) -> None:
    x = np.ones(shape, np.float32)
    for text, given, wanted in (
        (LOOP, {"n": np.array(turns)}, (turns, *shape)),
        (SCAN, {"items": np.zeros((turns, shape[0]), np.float32)}, (shape[0], turns, shape[1])),
    ):
        model = parse_proto(text, 18, ir_version=9).SerializeToString()
        with core.load_network(model, device) as network:
            for _ in range(2):
                made: dict[str, Any] = network.create_infer_request().infer_sync({**given, "x": x})
                assert made["y"].shape == wanted
                np.testing.assert_array_equal(made["total"], (turns + 1) * x)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_runs_of_one_network_have_lengths_of_their_own(device: str, core: Core) -> None:
    model = parse_proto(LOOP, 18, ir_version=9).SerializeToString()
    with core.load_network(model, device) as network:
        for length in (2, 5, 3):
            x = np.ones((length, 3), np.float32)
            made = network.create_infer_request().infer_sync({"n": np.array(0), "x": x})
            assert made["y"].shape == (0, length, 3)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("axis", [3, -4])
@pytest.mark.parametrize("turns", [0, 2])
def test_an_axis_that_results_cannot_have_is_named(
    turns: int, axis: int, device: str, core: Core
) -> None:
    text = SCAN.replace("scan_output_axes = [1]", f"scan_output_axes = [{axis}]")
    model = parse_proto(text, 18, ir_version=9).SerializeToString()
    given = {"items": np.zeros((turns, 2), np.float32), "x": np.ones((2, 3), np.float32)}
    with (
        core.load_network(model, device) as network,
        pytest.raises(TensorError, match=f"stacks outputs along axis {axis}, and they have 2 axes"),
    ):
        network.create_infer_request().infer_sync(given)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
def test_an_axis_of_results_whose_rank_nothing_tells_is_taken(device: str, core: Core) -> None:
    text = """g (float[L,A] items, int64[R] to) => (float[] y) {
        y = Scan(items) <
            num_scan_inputs = 1, scan_output_axes = [1],
            body = b (float[A] item) => (float[] made) { made = Reshape(item, to) }
        >
    }"""
    model = parse_proto(text, 18, ir_version=9)
    for value in (model.graph.output[0], model.graph.node[0].attribute[-1].g.output[0]):
        value.type.tensor_type.ClearField("shape")
    to = np.array([1, 2])
    with core.load_network(model.SerializeToString(), device) as network:
        request = network.create_infer_request()
        made = request.infer_sync({"items": np.zeros((3, 2), np.float32), "to": to})["y"]
        assert made.shape == (1, 3, 2)
        made = request.infer_sync({"items": np.zeros((0, 2), np.float32), "to": to})["y"]
        assert made.size == 0
