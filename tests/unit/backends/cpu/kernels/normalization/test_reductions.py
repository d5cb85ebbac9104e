import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.plans import implementations

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
AXES = [[0], [1], [-1], [2, 3], [0, 2], [1, 3], [0, 1, 2, 3], None]


def numbers(shape, dtype=np.float32):
    made = np.asarray(np.random.default_rng(0).random(shape) + 0.5)
    return made.astype(dtype) if dtype is np.float32 else np.asarray(made * 5).astype(dtype)


def reduction(op_type, x, axes, **attributes):
    names, constants = ["x"], {}
    if axes is not None:
        names, constants = ["x", "axes"], {"axes": np.array(axes, np.int64)}
    dynamic = attributes.pop("dynamic", False)
    node = helper.make_node(op_type, names, ["y"], **attributes)
    return model_of([node], {"x": x}, constants=constants, dynamic=dynamic), {"x": x}


def every(x, axes, **attributes):
    """Make a model of all reductions, with an output for each."""
    names = ["x"] if axes is None else ["x", "axes"]
    constants = {} if axes is None else {"axes": np.array(axes, np.int64)}
    nodes = [helper.make_node(op_type, names, [op_type], **attributes) for op_type in REDUCTIONS]
    return model_of(nodes, {"x": x}, REDUCTIONS, constants), {"x": x}


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes(core, axes, keepdims) -> None:
    model, inputs = every(numbers((2, 3, 4, 5)), axes, keepdims=keepdims)
    assert_same_as_reference(core, model, inputs)
    assert implementations(core, model, inputs) == ["native:reduce"] * len(REDUCTIONS)


@pytest.mark.parametrize("axes", [None, []])
def test_no_axes_may_mean_none(core, axes) -> None:
    model, inputs = every(numbers((3, 4)), axes, noop_with_empty_axes=1)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceMax"])
def test_axes_as_an_attribute(core, op_type) -> None:
    x = numbers((2, 3, 4))
    node = helper.make_node(op_type, ["x"], ["y"], axes=[1], keepdims=0)
    assert_same_as_reference(core, model_of([node], {"x": x}, opset=13), {"x": x})


@pytest.mark.parametrize("shape", [(), (1,), (5,)])
def test_low_ranks(core, shape) -> None:
    x = numbers(shape)
    for op_type in REDUCTIONS:
        if shape or op_type != "ReduceLogSumExp":  # REFERENCE fails on it
            assert_same_as_reference(core, *reduction(op_type, x, None))


EMPTY = {"ReduceSum": 0, "ReduceProd": 1, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceL2": 0}


@pytest.mark.parametrize("op_type", EMPTY)
def test_nothing_to_reduce(core, op_type) -> None:
    model, inputs = reduction(op_type, numbers((3, 0, 2)), [1], keepdims=0)
    found = run(core, model, "CPU", inputs)["y"]
    np.testing.assert_array_equal(found, np.full((3, 2), EMPTY[op_type], np.float32))
    model, inputs = reduction(op_type, numbers((3, 0, 2)), [0], keepdims=0)
    assert run(core, model, "CPU", inputs)["y"].shape == (0, 2)


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"])
def test_nan_and_infinities(core, op_type) -> None:
    x = np.array([[1, np.nan, 2], [np.inf, 0, 1], [-np.inf, -np.inf, -np.inf]], np.float32)
    for axis in (0, 1):
        x_of_axis = x if op_type != "ReduceLogSumExp" else x[:2]
        assert_same_as_reference(core, *reduction(op_type, x_of_axis, [axis]))


@pytest.mark.parametrize(
    "op_type", ["ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceMean"]
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers(core, op_type, dtype) -> None:
    assert_same_as_reference(core, *reduction(op_type, numbers((3, 4), dtype), [1]))


def test_in_bfloat16(core) -> None:
    x = numbers((4, 3, 6))
    nodes = [helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.5)]
    for op_type in REDUCTIONS:
        nodes.append(helper.make_node(op_type, ["a", "axes"], [f"{op_type}_"], keepdims=1))
        nodes.append(helper.make_node("Concat", [f"{op_type}_"] * 2, [op_type], axis=0))
    model = model_of(nodes, {"x": x}, REDUCTIONS, {"axes": np.array([2], np.int64)})
    assert_same_as_reference(
        core, model, {"x": x}, bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16"
    )


@EXAMPLES
@given(
    st.sampled_from(REDUCTIONS),
    st.lists(st.integers(1, 7), max_size=5),
    st.sets(st.integers(0, 4)),
    st.integers(0, 1),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_any_shapes(core, op_type, shape, axes, keepdims, dynamic, threads) -> None:
    chosen = [axis for axis in axes if axis < len(shape)]
    x = numbers(shape)
    model, inputs = reduction(op_type, x, chosen or None, keepdims=keepdims, dynamic=dynamic)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=threads)


def test_a_long_sum_is_as_exact_as_its_numbers(core) -> None:
    x = np.full((2, 300_000), 0.1, np.float32)
    for axes in ([1], [0, 1]):
        model, inputs = reduction("ReduceSum", x, axes, keepdims=0)
        found = run(core, model, "CPU", inputs, INFERENCE_NUM_THREADS=2)["y"]
        np.testing.assert_allclose(found, np.sum(x.astype(np.float64), axis=tuple(axes)), rtol=1e-7)


def test_layouts_of_convolutions_are_reduced_as_they_lie(core) -> None:
    x = np.asarray(np.random.default_rng(0).standard_normal((2, 3, 9, 9)), np.float32)
    weights = np.asarray(np.random.default_rng(1).standard_normal((16, 3, 3, 3)), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("ReduceMean", ["a", "axes"], ["y"], keepdims=1),
        helper.make_node("ReduceMax", ["a", "channels"], ["z"], keepdims=0),
    ]
    constants = {"w": weights, "axes": np.array([2, 3]), "channels": np.array([1])}
    assert_same_as_reference(core, model_of(nodes, {"x": x}, ["y", "z"], constants), {"x": x})


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("attributes", [{}, {"axis": -1, "keepdims": 0}, {"select_last_index": 1}])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_positions(core, op_type, attributes, dtype) -> None:
    x = numbers((4, 5), dtype)
    model = model_of([helper.make_node(op_type, ["x"], ["y"], **attributes)], {"x": x})
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("attributes", [{}, {"axis": 0, "largest": 0}])
def test_top(core, attributes) -> None:
    x = numbers((4, 5))
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], **attributes)
    model = model_of([node], {"x": x}, ["y", "i"], {"k": np.array([2])})
    assert_same_as_reference(core, model, {"x": x})
