import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from exhaustive import drawn
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.plans import implementations

EXAMPLES = settings(max_examples=drawn(40), derandomize=True)
SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
FEW = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan], np.float32)


def extremes(x, op_type="ArgMax", dynamic=False, **attributes):
    node = helper.make_node(op_type, ["x"], ["y"], **attributes)
    return model_of([node], {"x": x}, dynamic=dynamic), {"x": x}


def top(x, count, dynamic=False, **attributes):
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"], **attributes)
    constants = {"k": np.array([count], np.int64)}
    return model_of([node], {"x": x}, ["values", "places"], constants, dynamic=dynamic), {"x": x}


@EXAMPLES
@given(st.data(), SHAPES, st.sampled_from(["ArgMax", "ArgMin"]), st.booleans(), st.booleans())
def test_extremes_are_where_reference_finds_them(
    core, data, shape, op_type, wants_last, keepdims
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).choice(FEW, shape)
    model, inputs = extremes(
        x, op_type, axis=axis, select_last_index=int(wants_last), keepdims=int(keepdims)
    )
    assert_same_as_reference(core, model, inputs)


@EXAMPLES
@given(st.data(), SHAPES, st.booleans())
def test_the_top_is_what_reference_keeps(core, data, shape, wants_largest) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    count = data.draw(st.integers(0, shape[axis]))
    x = np.random.default_rng(data.draw(st.integers(0, 99))).choice(FEW, shape)
    model, inputs = top(x, count, axis=axis, largest=int(wants_largest))
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("shape", [(3, 700), (700, 3), (2, 700, 300)])
def test_long_axes_and_many_columns(core, shape) -> None:
    x = np.random.default_rng(1).integers(0, 90, shape).astype(np.float32)
    assert_same_as_reference(core, *extremes(x, "ArgMin", axis=1))
    assert_same_as_reference(core, *top(x, min(300, shape[1]), axis=1, largest=0))


def test_they_are_native(core) -> None:
    x = np.ones((3, 4), np.float32)
    assert implementations(core, *extremes(x, axis=1)) == ["native:find_extremes"]
    assert implementations(core, *top(x, 2)) == ["native:select_top"]


def test_what_is_kept_in_any_order_is_kept_in_order(core) -> None:
    model, inputs = top(np.array([[3, 1, 2]], np.float32), 2, sorted=0)
    found = run(core, model, "CPU", inputs)
    np.testing.assert_array_equal(found["values"], [[3, 2]])
    np.testing.assert_array_equal(found["places"], [[0, 2]])


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_integers(core, dtype) -> None:
    x = np.array([[3, 1, 2], [2, 2, 1]], dtype)
    assert_same_as_reference(core, *extremes(x, "ArgMin", axis=1))
    assert_same_as_reference(core, *top(x, 2))


def test_new_lengths_are_replayed(core) -> None:
    model, _ = extremes(np.ones((2, 3), np.float32), axis=1, dynamic=True)
    chosen, _ = top(np.ones((2, 3), np.float32), 2, dynamic=True)
    for length in (3, 5, 8, 13):
        x = np.random.default_rng(length).random((length + 1, length)).astype(np.float32)
        assert_same_as_reference(core, model, {"x": x})
        assert_same_as_reference(core, chosen, {"x": x})
