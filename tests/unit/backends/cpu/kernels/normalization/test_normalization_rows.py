"""LayerNormalization and RMSNormalization equal their formulas, over any last axes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from aioinfer.errors import TensorError, UnsupportedOpError
from aioinfer.runtime.graph import DType
from exhaustive import drawn
from unit.backends.cpu.comparing import (
    BF16_BOUND,
    F32_BOUND,
    assert_same_as_reference,
    model_of,
    run,
)
from unit.backends.cpu.single_nodes import largest_error, run_fused

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
BOUNDS = {DType.FLOAT32: F32_BOUND, DType.BFLOAT16: BF16_BOUND}


def arrays(*shapes, seed=0):
    chance = np.random.default_rng(seed)
    return [chance.normal(0.5, 2, shape).astype(np.float32) for shape in shapes]


def layer_norm(x, scale, shift, axis, epsilon):
    axes = tuple(range(axis % x.ndim, x.ndim))
    x = x.astype(np.float64)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + shift


def rms_norm(x, scale, axis, epsilon):
    axes = tuple(range(axis % x.ndim, x.ndim))
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * scale


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -2])
@pytest.mark.parametrize("has_shift", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_layer_normalization_over_last_axes(core, axis, has_shift, dynamic) -> None:
    shape = (2, 3, 20)
    x, scale, shift = arrays(shape, shape[axis:], shape[axis:])
    constants = {"scale": scale, "shift": shift} if has_shift else {"scale": scale}
    node = helper.make_node("LayerNormalization", ["x", *constants], ["y"], axis=axis)
    model = model_of([node], {"x": x}, constants=constants, dynamic=dynamic)
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize(
    "names", [["y", "mean"], ["y", "mean", "deviation"], ["y", "", "deviation"]]
)
def test_layer_normalization_gives_its_statistics(core, axis, names) -> None:
    shape = (2, 3, 20)
    x, scale = arrays(shape, shape[axis:])
    node = helper.make_node("LayerNormalization", ["x", "scale"], names, axis=axis, epsilon=1e-3)
    outputs = [name for name in names if name]
    model = model_of([node], {"x": x}, outputs, {"scale": scale})
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (4, 1), (1,), (4, 5)])
def test_scale_and_shift_broadcast(core, is_constant, shape) -> None:
    x, scale, shift = arrays((3, 4, 5), shape, shape)
    every = {"x": x, "scale": scale, "shift": shift}
    inputs = {"x": x} if is_constant else every
    constants = {name: array for name, array in every.items() if name not in inputs}
    node = helper.make_node("LayerNormalization", [*every], ["y"], axis=1)
    assert_same_as_reference(core, model_of([node], inputs, constants=constants), inputs)


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (1, 1, 1), (1, 1, 5)])
def test_a_scale_may_have_more_axes_than_a_row(core, op, shape, is_constant) -> None:
    x, scale, shift = arrays((3, 4, 5), shape, shape)
    every = {"x": x, "scale": scale}
    if op == "LayerNormalization":
        every["shift"] = shift
    inputs = {"x": x} if is_constant else every
    constants = {name: array for name, array in every.items() if name not in inputs}
    node = helper.make_node(op, [*every], ["y"], axis=-1)
    model = model_of([node], inputs, constants=constants, dynamic=is_constant, opset=23)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize(
    "names", [["y", "mean"], ["y", "mean", "deviation"], ["y", "", "deviation"]]
)
def test_statistics_of_rows_without_elements_are_no_numbers(core, names) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("LayerNormalization", ["r", "scale"], names),
    ]
    outputs = [name for name in names if name]
    x, scale = np.zeros((3, 0), np.float32), np.zeros(0, np.float32)
    model = model_of(nodes, {"x": x, "scale": scale}, outputs, dynamic=True)
    network = core.load_network(model, "CPU")
    for count in (3, 4, 5):
        given = {"x": np.zeros((count, 0), np.float32), "scale": scale}
        found = network.create_infer_request().infer_sync(given)
        assert found["y"].shape == (count, 0)
        for name in outputs[1:]:
            np.testing.assert_array_equal(found[name], np.full((count, 1), np.nan, np.float32))
    network.close()


@pytest.mark.parametrize("shape", [(0, 4), (1,), (4,), (2, 1)])
def test_layer_normalization_of_small_and_empty(core, shape) -> None:
    x, scale = arrays(shape, shape[-1:])
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], epsilon=0.1)
    model = model_of([node], {"x": x}, constants={"scale": scale})
    assert_same_as_reference(core, model, {"x": x})


@EXAMPLES
@given(
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    data=st.data(),
    op=st.sampled_from(["LayerNormalization", "RMSNormalization"]),
    float_dtype=st.sampled_from([*BOUNDS]),
    thread_count=st.sampled_from([1, 2]),
)
def test_random_shapes_of_fused_nodes(shape, data, op, float_dtype, thread_count) -> None:
    axis = data.draw(st.integers(-len(shape), -1))
    x, scale, shift = arrays(shape, shape[axis:], shape[axis:])
    is_centred = op == "LayerNormalization"
    inputs = [x, scale, shift] if is_centred else [x, scale]
    found, steps = run_fused(
        op,
        inputs,
        shape,
        {"axis": axis, "epsilon": 0.5},
        tuple(range(1, len(inputs))),
        float_dtype=float_dtype,
        thread_count=thread_count,
    )
    if is_centred:
        wanted = layer_norm(x, scale, shift, axis, 0.5)
    else:
        wanted = rms_norm(x, scale, axis, 0.5)
    assert largest_error(found, wanted) <= BOUNDS[float_dtype]
    assert not [step for step in steps if "ref" in step]


@pytest.mark.parametrize("float_dtype", BOUNDS)
@pytest.mark.parametrize("length", [1, 15, 16, 17, 63, 64, 65, 79, 127, 128, 131, 383, 384, 1001])
def test_rows_of_whole_vectors_and_of_what_is_left(length, float_dtype) -> None:
    """Rows end wherever they like: what lies behind one is the next one's, of other numbers."""
    x, scale, shift = arrays((7, length), (length,), (length,), seed=length)
    x *= np.arange(1, 8, dtype=np.float32)[:, None]
    found, _ = run_fused(
        "LayerNormalization",
        [x, scale, shift],
        x.shape,
        {"axis": -1, "epsilon": 1e-3},
        (1, 2),
        float_dtype=float_dtype,
    )
    assert largest_error(found, layer_norm(x, scale, shift, -1, 1e-3)) <= BOUNDS[float_dtype]


@pytest.mark.parametrize("place", [0, 17, 64, 130])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_spoils_its_own_row_alone(place, number) -> None:
    x, scale, shift = arrays((3, 131), (131,), (131,))
    x[1, place] = number
    attributes = {"axis": -1, "epsilon": 1e-3}
    found, _ = run_fused("LayerNormalization", [x, scale, shift], x.shape, attributes, (1, 2))
    assert np.isnan(found[1]).all()
    wanted = layer_norm(x[::2], scale, shift, -1, 1e-3)
    assert largest_error(found[::2], wanted) <= F32_BOUND


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_rms_normalization_in_place_between_steps(core, axis, precision) -> None:
    shape = (40, 3, 150)
    x, scale = arrays(shape, shape[axis:])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("RMSNormalization", ["r", "scale"], ["n"], axis=axis, epsilon=1e-4),
        helper.make_node("Tanh", ["n"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, constants={"scale": scale}, opset=23)
    found = run(core, model, "CPU", {"x": x}, INFERENCE_PRECISION_HINT=precision)["y"]
    wanted = np.tanh(rms_norm(np.maximum(x, 0), scale, axis, 1e-4))
    assert largest_error(found, wanted) <= (F32_BOUND if precision == "f32" else BF16_BOUND)


def test_large_numbers_of_one_size_keep_their_differences() -> None:
    x = (1000 + np.random.default_rng(0).standard_normal((4, 256))).astype(np.float32)
    ones, zeros = np.ones(256, np.float32), np.zeros(256, np.float32)
    attributes = {"axis": -1, "epsilon": 1e-5}
    found, _ = run_fused("LayerNormalization", [x, ones, zeros], x.shape, attributes, (1, 2))
    assert largest_error(found, layer_norm(x, 1.0, 0.0, -1, 1e-5)) <= 1e-4


def test_statistics_of_another_type_are_refused() -> None:
    x, scale = arrays((2, 4), (4,))
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], stash_type=11)
    model = model_of([node], {"x": x}, constants={"scale": scale})
    with Core() as core, pytest.raises(UnsupportedOpError, match="stash_type 1"):
        core.load_network(model, "CPU")


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("shape", [(2, 1), (2, 4), (3, 1, 1), (3, 2, 4)])
def test_scales_and_shifts_may_differ_from_row_to_row(core, op, shape, is_open, precision) -> None:
    x, scale = arrays((3, 2, 4), shape)
    given = {"x": x, "scale": scale} if is_open else {"x": x}
    constants = {} if is_open else {"scale": scale}
    shift = ["x"] if op == "LayerNormalization" else []
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(op, ["r", "scale", *(["r"] if shift else [])], ["y"]),
    ]
    model = model_of(nodes, given, constants=constants, dynamic=is_open, opset=23)
    made = run(core, model, "CPU", given, INFERENCE_PRECISION_HINT=precision)["y"]
    wanted = run(core, model, "REFERENCE", given)["y"]
    assert largest_error(made, wanted) <= (F32_BOUND if precision == "f32" else BF16_BOUND)


def test_a_factor_that_is_longer_than_its_rows_is_refused(core) -> None:
    x, scale = arrays((3, 2, 4), (5, 2, 4))
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y"])
    model = model_of([node], {"x": x, "scale": scale}, dynamic=True)
    with core.load_network(model, "CPU") as network, pytest.raises(TensorError, match="scale"):
        network.create_infer_request().infer_sync({"x": x, "scale": scale})


def test_rms_normalization_has_the_type_of_its_scale(core: Core) -> None:
    inputs = {"x": np.random.default_rng(5).standard_normal((3, 8)).astype(np.float32)}
    constants = {"g": np.arange(8, dtype=np.float16)}
    model = model_of(
        [helper.make_node("RMSNormalization", ["x", "g"], ["y"])],
        inputs,
        constants=constants,
        opset=23,
    )
    found = assert_same_as_reference(core, model, inputs, bound=2e-3)
    assert found["y"].dtype == np.float16
