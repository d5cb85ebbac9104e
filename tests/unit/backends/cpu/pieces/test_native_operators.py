"""Steps between pieces that native code computes, beside onnxruntime and REFERENCE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.cpu.pieces import native_operators
from aioinfer.errors import TensorError
from onnx_text import parse_proto

ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TOP = """g ({dtype}[{dims}] x, float[K] marks) => ({dtype}[{dims_out}] y, int64[{dims_out}] at) {{
    places = NonZero(marks)
    all = Shape(places)
    one = Constant<value_ints = [1]>()
    k = Gather<axis = 0>(all, one)
    y, at = TopK<axis = {axis}, largest = {largest}>(x, k)
}}"""

SELECTED = """g (float[B,N,4] boxes, float[B,C,N] scores, int64 limit, float overlap, float least)
    => (int64[M,3] y) {
    y = NonMaxSuppression<center_point_box = CENTRED>(boxes, scores, limit, overlap, least)
}"""


def run_all(text: str, feeds: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the outputs of CPU, REFERENCE and onnxruntime."""
    model = parse_proto(text, 18, ir_version=9).SerializeToString()
    found = []
    with aioinfer.Core() as core:
        for device in ("CPU", "REFERENCE"):
            with core.load_network(model, device) as network:
                found.append([*network.create_infer_request().infer_sync(feeds).values()])
    return found[0], found[1], ort.InferenceSession(model).run(None, feeds)


@pytest.mark.parametrize("dtype", ["float", "int32", "int64"])
@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize(
    ("shape", "axis"), [((40,), -1), ((40,), 0), ((3, 50), 1), ((3, 50), 0), ((2, 4, 30), -1)]
)
def test_the_first_of_an_axis_are_kept_with_ties_by_place(
    shape: tuple[int, ...], axis: int, largest: int, dtype: str
) -> None:
    chance = np.random.default_rng(len(shape))
    x = chance.integers(-6, 6, shape).astype("float32" if dtype == "float" else dtype)
    dims = [f"D{at}" for at in range(len(shape))]
    out = [f"E{at}" for at in range(len(shape))]
    text = TOP.format(
        dtype=dtype, dims=",".join(dims), dims_out=",".join(out), axis=axis, largest=largest
    )
    for count in (0, 1, shape[axis] // 2, shape[axis]):
        found, wanted, peer = run_all(text, {"x": x, "marks": np.ones(count, np.float32)})
        for mine, right, other in zip(found, wanted, peer, strict=True):
            np.testing.assert_array_equal(mine, right)
            np.testing.assert_array_equal(mine, other)


def test_more_than_an_axis_has_cannot_be_kept() -> None:
    text = TOP.format(dtype="float", dims="N", dims_out="M", axis=-1, largest=1)
    with pytest.raises(TensorError, match="3 elements cannot be kept of the 2 along axis -1"):
        run_all(text, {"x": np.zeros(2, np.float32), "marks": np.ones(3, np.float32)})


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("limit", [0, 5, 1000])
def test_boxes_of_several_images_and_classes_are_selected(limit: int, centred: int) -> None:
    chance = np.random.default_rng(limit)
    low = chance.integers(0, 60, (2, 400, 2)).astype(np.float32)
    size = chance.integers(1, 20, low.shape).astype(np.float32)
    boxes = np.concatenate([low, size if centred else low + size], axis=2)
    scores = (chance.permutation(2 * 3 * 400) / 2400).reshape(2, 3, 400).astype(np.float32)
    feeds = {
        "boxes": boxes,
        "scores": scores,
        "limit": np.array(limit, np.int64),
        "overlap": np.array(0.3, np.float32),
        "least": np.array(0.25, np.float32),
    }
    found, wanted, peer = run_all(SELECTED.replace("CENTRED", str(centred)), feeds)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[0], peer[0])
    assert (len(found[0]) > 0) == (limit > 0)


def test_a_score_threshold_that_is_no_number_selects_nothing() -> None:
    feeds = {
        "boxes": np.array([[[0, 0, 1, 1]]], np.float32),
        "scores": np.ones((1, 1, 1), np.float32),
        "limit": np.array(3, np.int64),
        "overlap": np.array(0.3, np.float32),
        "least": np.array(np.nan, np.float32),
    }
    found, wanted, _ = run_all(SELECTED.replace("CENTRED", "0"), feeds)
    assert found[0].shape == wanted[0].shape == (0, 3)


def test_numbers_are_put_in_order_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("numpy put them in order")

    monkeypatch.setattr(native_operators, "top_k", refuse)
    text = TOP.format(dtype="float", dims="N", dims_out="M", axis=-1, largest=1)
    x = np.array([3, np.nan, 5, 3], np.float32)
    model = parse_proto(text, 18, ir_version=9).SerializeToString()
    with aioinfer.Core() as core, core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync({"x": x, "marks": np.ones(3, np.float32)})
    assert found["at"].tolist() == [1, 2, 0]
