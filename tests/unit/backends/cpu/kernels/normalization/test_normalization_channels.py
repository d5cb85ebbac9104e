"""Normalisations of channels equal REFERENCE, with constant and computed parameters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer.runtime.graph import DType, Node, TensorType, Value
from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, F32_BOUND, assert_same_as_reference, model_of
from unit.backends.cpu.compiled_plans import plan_of
from unit.backends.cpu.single_nodes import largest_error, model_of_nodes, run_plan, value_of
from unit.backends.cpu.single_nodes import plan_of as single_plan_of

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
SHAPES = [(2, 6), (2, 6, 7), (1, 6, 5, 4), (2, 16, 3, 4, 2), (1, 4, 2, 3, 2, 2), (0, 6, 4, 4)]


def drawn(shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(core, node, arrays, constants=(), bound=F32_BOUND, opset=21, **config) -> None:
    inputs = {name: array for name, array in arrays.items() if name not in constants}
    weights = {name: array for name, array in arrays.items() if name in constants}
    # A Relu before it, so that nothing is folded away.
    nodes = [helper.make_node("Relu", ["x"], ["r"]), node]
    model = model_of(nodes, inputs, constants=weights, dynamic=True, opset=opset)
    assert_same_as_reference(core, model, inputs, bound=bound, **config)


def batch_normalization(shape, **attributes):
    names = ["r", "s", "b", "m", "v"]
    node = helper.make_node("BatchNormalization", names, ["y"], **attributes)
    channels = (shape[1],)
    arrays = {"x": drawn(shape), **{n: drawn(channels, i) for i, n in enumerate(names[1:], 1)}}
    return node, {**arrays, "v": np.abs(arrays["v"]) + 0.1}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("constants", ["sbmv", ""])
def test_batch_normalization(core, shape, constants) -> None:
    node, arrays = batch_normalization(shape, epsilon=1e-3)
    check(core, node, arrays, constants)
    check(core, node, arrays, constants, BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


def test_batch_normalization_keeps_the_layout_of_a_convolution(core) -> None:
    node, arrays = batch_normalization((1, 32, 6, 6))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Sigmoid", ["c"], ["r"]),
        node,
        helper.make_node("MaxPool", ["y"], ["z"], kernel_shape=[2, 2]),
    ]
    arrays = {**arrays, "x": drawn((1, 16, 6, 6)), "w": drawn((32, 16, 1, 1), 9)}
    inputs = {name: array for name, array in arrays.items() if name in "xsbmv"}
    model = model_of(nodes, inputs, ["z"], {"w": arrays["w"]})
    plan = plan_of(core, model, inputs)
    (step,) = (step for step in plan.steps if "BatchNormalization" in step.origin.op)
    assert not step.implementation.startswith("ref")
    assert_same_as_reference(core, model, inputs)


def test_training_is_refused(core) -> None:
    node, arrays = batch_normalization((1, 4, 3, 3), training_mode=1)
    node.output.extend(["mean", "variance"])
    nodes = [helper.make_node("Relu", ["x"], ["r"]), node]
    model = model_of(nodes, arrays)
    assert "inference" in str(core.query_network(model, "CPU"))


def grouped(op, shape, count, **attributes):
    node = helper.make_node(op, ["r", "s", "b"], ["y"], **attributes)
    return node, {"x": drawn(shape), "s": drawn((count,), 1), "b": drawn((count,), 2)}


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) > 2])
@pytest.mark.parametrize("constants", ["sb", ""])
def test_instance_normalization(core, shape, constants) -> None:
    node, arrays = grouped("InstanceNormalization", shape, shape[1], epsilon=1e-2)
    check(core, node, arrays, constants)
    check(core, node, arrays, constants, BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


def group_normalized(x, scale, bias, groups, epsilon=1e-5) -> np.ndarray:
    rows = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    mean, variance = rows.mean(-1, keepdims=True), rows.var(-1, keepdims=True)
    each = ((rows - mean) / np.sqrt(variance + epsilon)).reshape(x.shape[0], len(scale), -1)
    return (each * scale[:, None] + bias[:, None]).reshape(x.shape)


def check_groups(shape, count, groups, constants, float_dtype=DType.FLOAT32) -> None:
    """Lower the node alone: onnx infers no type for what GroupNormalization makes."""
    arrays = [drawn(shape), drawn((count,), 1), drawn((count,), 2)]
    values = [
        value_of(n, a, is_constant=n in constants) for n, a in zip("xsb", arrays, strict=True)
    ]
    result = Value("y", TensorType(DType.FLOAT32, shape))
    node = Node("GroupNormalization", values, [result], {"num_groups": groups}, name="node")
    given = [value for value in values if not value.is_constant]
    plan = single_plan_of(model_of_nodes([node], given, [result]), float_dtype=float_dtype)
    (found,) = run_plan(plan, [arrays["xsb".index(value.name)] for value in given])
    bound = F32_BOUND if float_dtype is DType.FLOAT32 else BF16_BOUND
    assert largest_error(found, group_normalized(*arrays, groups)) <= bound


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("constants", ["sb", ""])
@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_group_normalization_with_a_scale_for_each_channel(groups, constants, float_dtype) -> None:
    check_groups((2, 6, 4, 5), 6, groups, constants, float_dtype)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_group_normalization_with_a_scale_for_each_group(groups) -> None:
    check_groups((2, 6, 4, 5), groups, groups, "sb")
    check_groups((2, 6, 7), groups, groups, "")


@pytest.mark.parametrize("shape", [(3, 6, 1), (2, 6, 1, 1), (1, 6, 1)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_groups_of_several_images_of_one_pixel(shape, groups) -> None:
    check_groups(shape, 6, groups, "")


@pytest.mark.parametrize("opset", [18, 20])
def test_group_normalization_of_an_opset_with_a_scale_for_each_group(core, opset) -> None:
    node, arrays = grouped("GroupNormalization", (2, 6, 4, 5), 2, num_groups=2)
    for constants in ("", "sb"):
        check(core, node, arrays, constants, opset=opset)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_group_normalization_loads_by_itself(core, dynamic) -> None:
    node, arrays = grouped("GroupNormalization", (1, 4, 3), 4, num_groups=2)
    nodes = [helper.make_node("Relu", ["x"], ["r"]), node]
    assert_same_as_reference(core, model_of(nodes, arrays, dynamic=dynamic), arrays)


@pytest.mark.parametrize("shape", [(1, 6, 5, 4), (2, 20, 3, 3), (1, 7, 6), (1, 5, 2, 3, 2)])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response_normalization(core, shape, size) -> None:
    node = helper.make_node("LRN", ["r"], ["y"], size=size, alpha=0.1, beta=0.7, bias=1.5)
    check(core, node, {"x": drawn(shape)})
    check(core, node, {"x": drawn(shape)}, (), BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


def test_an_even_size_is_refused(core) -> None:
    node = helper.make_node("LRN", ["x"], ["y"], size=4)
    model = model_of([node], {"x": drawn((1, 4, 3, 3))})
    assert "odd number" in str(core.query_network(model, "CPU"))


@EXAMPLES
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["batch", "instance", "group"]),
)
def test_any_normalization_equals_reference(core, lengths, images, each, groups, kind) -> None:
    shape = (images, groups * each, *lengths)
    if kind == "batch":
        check(core, *batch_normalization(shape))
    elif kind == "instance":
        check(core, *grouped("InstanceNormalization", shape, shape[1]))
    else:
        check_groups(shape, shape[1], groups, "sb")
