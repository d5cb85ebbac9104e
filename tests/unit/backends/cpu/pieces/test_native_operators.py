"""Steps between pieces that native code computes, beside onnxruntime and REFERENCE."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import aioinfer
from aioinfer.backends.cpu.native.step_runner import StepRunner
from aioinfer.backends.cpu.pieces import native_operators
from aioinfer.errors import RequestCancelledError, TensorError
from aioinfer.runtime.operators.indices.scattering import write_elements
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


WRITTEN = """g (float[K] marks, int64[A,B] at, float[A,B] updates, int64[C,1] rows, float[C,3] more)
    => (float[M,3] y, float[D,3] z) {
    places = NonZero(marks)
    count = Shape(places)
    ends = Constant<value_ints = [1, 3]>()
    last = Slice(count, one, two)
    sizes = Concat<axis = 0>(last, three)
    empty = ConstantOfShape(sizes)
    first = ScatterElements<axis = 0>(empty, at, updates)
    y = ScatterND(first, rows, more)
    z = OTHER
}""".replace(
    "    ends = Constant<value_ints = [1, 3]>()\n",
    "    one = Constant<value_ints = [1]>()\n    two = Constant<value_ints = [2]>()\n"
    "    three = Constant<value_ints = [3]>()\n",
)


@pytest.mark.parametrize(
    ("other", "written_count"),
    [("Relu(y)", 2), ("Add(y, first)", 1), ("Add(empty, y)", 1), ("Add(first, empty)", 0)],
)
def test_what_nothing_else_uses_is_written_in_place(
    other: str, written_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def write(function: Any, x: np.ndarray, *rest: np.ndarray, **attributes: Any) -> np.ndarray:
        given.append(x)
        return function(x, *rest, **attributes)

    for name, function in native_operators._WRITERS.items():
        monkeypatch.setitem(native_operators._WRITERS, name, functools.partial(write, function))
    chance = np.random.default_rng(1)
    for count in (4, 7, 1):
        feeds = {
            "marks": np.ones(count, np.float32),
            "at": chance.integers(-count, count, (1, 3)),
            "updates": chance.random((1, 3), np.float32),
            "rows": np.array([[0], [-1], [0]]),
            "more": chance.random((3, 3), np.float32),
        }
        given.clear()
        found, wanted, _ = run_all(WRITTEN.replace("OTHER", other), feeds)
        for mine, right in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine, right)
        assert len(given) == written_count


WRITTEN_AGAIN = """g (float[K] marks) => (float[M] last, float[T,M] seen) {
    zero = Constant<value_float = 0.0>()
    places = NonZero(marks)
    count = Shape(places)
    one = Constant<value_ints = [1]>()
    size = Gather<axis = 0>(count, one)
    trips = Squeeze(size)
    base = ConstantOfShape(size)
    go = Constant<value = bool {1}>()
    first = Expand(zero, size)
    last, seen = Loop(trips, go, first) <body = each
        (int64 i, bool goes, float[M] sum) => (bool goes_on, float[M] added, float[M] kept) {
        goes_on = Identity(goes)
        axis = Constant<value_ints = [0]>()
        column = Constant<value_ints = [1, 1]>()
        at = Reshape(i, column)
        number = Cast<to = 1>(at)
        flat_at = Squeeze(at, axis)
        flat = Squeeze(number, axis)
        written = WRITE
        kept = Neg(written)
        added = Add(sum, written)
    }>
}"""


@pytest.mark.parametrize(
    "write", ["ScatterND(base, at, flat)", "ScatterElements(base, flat_at, flat)"]
)
def test_what_a_loop_writes_into_is_as_it_was_in_each_turn(write: str) -> None:
    text = WRITTEN_AGAIN.replace("WRITE", write)
    found, wanted, peer = run_all(text, {"marks": np.ones(4, np.float32)})
    for mine, right, other in zip(found, wanted, peer, strict=True):
        np.testing.assert_array_equal(mine, right)
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("at", [4, -5])
def test_a_place_outside_is_refused_in_place_as_well(at: int) -> None:
    feeds = {
        "marks": np.ones(4, np.float32),
        "at": np.array([[0, at, 1]]),
        "updates": np.ones((1, 3), np.float32),
        "rows": np.zeros((1, 1), np.int64),
        "more": np.ones((1, 3), np.float32),
    }
    with pytest.raises(TensorError, match=f"index {at} is out of bounds"):
        run_all(WRITTEN.replace("OTHER", "Relu(y)"), feeds)


SPREAD = """g (float[N,4] x, float[4,4] w, float[K] marks) => (float[K,4] y) {
    places = NonZero(marks)
    axis = Constant<value_ints = [1]>()
    zero = Constant<value_ints = [0]>()
    flat = Squeeze(places, zero)
    column = Unsqueeze(flat, axis)
    chosen = Gather<axis = 0>(x, flat)
    made = MatMul(chosen, w)
    lengths = Constant<value_ints = [1, 4]>()
    repeated = Expand(column, lengths)
    all = Shape(x)
    base = ConstantOfShape(all)
    full = ScatterElements<axis = 0>(base, repeated, made)
    y = MatMul(full, w)
}"""


def test_indices_that_repeat_go_to_a_step_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    strides = []

    def write(x: np.ndarray, indices: np.ndarray, *rest: np.ndarray, **kept: Any) -> np.ndarray:
        strides.append(indices.strides)
        return write_elements(x, indices, *rest, **kept)

    monkeypatch.setitem(native_operators._WRITERS, "ScatterElements", write)
    chance = np.random.default_rng(2)
    for marks in ([1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]):
        feeds = {
            "x": chance.random((5, 4), np.float32),
            "w": chance.random((4, 4), np.float32),
            "marks": np.array(marks, np.float32),
        }
        found, wanted, peer = run_all(SPREAD, feeds)
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
        np.testing.assert_allclose(found[0], peer[0], rtol=1e-5)
    assert {item[1] for item in strides} == {0}


@pytest.mark.parametrize("function", ["order_floats", "suppress_boxes"])
def test_a_selection_of_boxes_ends_when_its_request_is_cancelled(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two classes the first one's is cancelled, and the second one's is not begun."""
    real, begun = getattr(StepRunner, function), []

    def begin(*given: Any, **options: Any) -> Any:
        begun.append(len(begun))
        request.cancel()
        return real(*given, **options)

    monkeypatch.setattr(StepRunner, function, begin)
    text = SELECTED.replace("CENTRED", "0")
    feeds = {
        "boxes": np.random.default_rng(1).random((1, 50, 4), np.float32),
        "scores": np.random.default_rng(2).random((1, 2, 50), np.float32),
        "limit": np.array(9, np.int64),
        "overlap": np.array(0.3, np.float32),
        "least": np.array(0.25, np.float32),
    }
    model = parse_proto(text, 18, ir_version=9).SerializeToString()
    with aioinfer.Core() as core, core.load_network(model, "CPU") as network:
        request = network.create_infer_request()
        with pytest.raises(RequestCancelledError):
            request.infer_sync(feeds)
    assert begun == [0]


PROFILED = """g (float[N,4] boxes, float[N] scores, int32[N] marks, int64 limit, bool go) => (
    int64[K] best, int64[L] most, int64[M,3] y, float[P,4] z, int64[2] sizes
) {
    places = NonZero(marks)
    one = Constant<value_ints = [1]>()
    zeros = Constant<value_ints = [0]>()
    shape = Shape(places)
    count = Gather<axis = 0>(shape, one)
    values, best = TopK(scores, count)
    numbers, most = TopK(marks, count)
    all = Unsqueeze(boxes, zeros)
    pair = Constant<value_ints = [0, 1]>()
    of_all = Unsqueeze(scores, pair)
    y = NonMaxSuppression(all, of_all, limit)
    z = If(go) <
        then_branch = t () => (float[P,4] a) { a = Neg(boxes) },
        else_branch = e () => (float[P,4] b) { b = Abs(boxes) }
    >
    found = Shape(y)
    first = Gather<axis = 0>(found, zeros)
    sizes = Concat<axis = 0>(first, one)
}"""


def test_profiles_name_what_computed_a_step() -> None:
    model = parse_proto(PROFILED, 18, ir_version=9).SerializeToString()
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 2], [3, 3, 4, 4]], np.float32)
    numbers = np.array([1, 3, 2], np.float32)
    feeds = {"boxes": boxes, "scores": numbers, "marks": numbers.astype(np.int32)}
    feeds |= {"limit": np.array(2), "go": np.array(True)}
    with (
        aioinfer.Core() as core,
        core.load_network(model, "CPU", {"PERF_COUNT": True}) as network,
    ):
        request = network.create_infer_request()
        request.infer_sync(feeds)
        found = [(item.op, item.implementation) for item in request.profiling()]
    assert [by for op, by in found if op == "TopK"] == ["native:order_floats", "numpy"]
    by = dict(found)
    assert by["NonMaxSuppression"] == "native:order_floats+native:suppress_boxes"
    assert by["NonZero"] == "numpy"
    assert by["aioinfer.cpu::Sizes"] == "python"
    assert by["If"] == "body"
