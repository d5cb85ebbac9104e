"""Pools equal REFERENCE in all forms, in the layout that their input has."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer.runtime.graph import DType
from exhaustive import drawn
from unit.backends.cpu.comparing import (
    BF16_BOUND,
    F32_BOUND,
    assert_same_as_reference,
    model_of,
    run,
)
from unit.backends.cpu.compiled_plans import plan_of

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
OPS = ["MaxPool", "AveragePool", "LpPool"]
GLOBAL_OPS = ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]

CASES = {
    "plain": ((1, 3, 8, 8), {"kernel_shape": [2, 2]}),
    "wide": ((2, 32, 9, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "asymmetric": ((1, 5, 8, 9), {"kernel_shape": [3, 4], "pads": [0, 3, 2, 1]}),
    "ceil": ((1, 4, 7, 8), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    "ceil over": (
        (1, 4, 6, 6),
        {"kernel_shape": [3, 3], "strides": [4, 4], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    ),
    "same upper": ((1, 3, 7, 8), {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"}),
    "same lower": (
        (1, 3, 7, 8),
        {"kernel_shape": [4, 4], "auto_pad": "SAME_LOWER", "strides": [2, 3]},
    ),
    "valid": ((1, 3, 7, 8), {"kernel_shape": [3, 3], "auto_pad": "VALID", "strides": [2, 2]}),
    "dilated": (
        (1, 16, 9, 9),
        {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1, 1, 1, 1]},
    ),
    "one axis": ((2, 3, 11), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}),
    "three axes": ((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "pads": [0, 1, 0, 1, 1, 1]}),
    "no images": ((0, 3, 8, 8), {"kernel_shape": [2, 2]}),
}


def drawn(shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(core, op, shape, attributes, bound=F32_BOUND, dynamic=True, **config) -> None:
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    inputs = {"x": drawn(shape)}
    model = model_of([node], inputs, dynamic=dynamic)
    assert_same_as_reference(core, model, inputs, bound=bound, **config)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("threads", [1, 2])
def test_pools(core, op, name, threads) -> None:
    check(core, op, *CASES[name], INFERENCE_NUM_THREADS=threads)


@pytest.mark.parametrize("name", CASES)
def test_average_with_padding(core, name) -> None:
    shape, attributes = CASES[name]
    check(core, "AveragePool", shape, {**attributes, "count_include_pad": 1})


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("op", ["LpPool", "GlobalLpPool"])
def test_norms(core, op, power) -> None:
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]} if op == "LpPool" else {}
    check(core, op, (2, 5, 6, 7), {**attributes, "p": power})


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("op", OPS)
def test_pools_in_bfloat16(core, op, name) -> None:
    check(core, op, *CASES[name], bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


@pytest.mark.parametrize("op", GLOBAL_OPS)
@pytest.mark.parametrize(
    "shape",
    [(1, 3, 7), (2, 20, 7, 7), (1, 3, 5, 6, 7), (1, 3, 2, 3, 2, 3), (1, 3, 1, 1), (0, 3, 4, 4)],
)
def test_global_pools(core, op, shape) -> None:
    check(core, op, shape, {})
    check(core, op, shape, {}, bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_maxima_of_integers(core, dtype) -> None:
    x = np.random.default_rng(0).integers(0, 120, (1, 4, 6, 6)).astype(dtype)
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    model = model_of([node], {"x": x})
    assert_same_as_reference(core, model, {"x": x})


@st.composite
def pool_cases(draw):
    rank = draw(st.integers(1, 3))

    def numbers(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    size, strides, dilations = numbers(1, 3), numbers(1, 3), numbers(1, 2)
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
    lengths = [length + span for length, span in zip(numbers(0, 5), reach, strict=True)]
    attributes = {"kernel_shape": size, "strides": strides, "dilations": dilations}
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, k - 1)) for k in (*size, *size)]
        attributes["ceil_mode"] = draw(st.integers(0, 1))
    else:
        attributes["auto_pad"] = auto
    return (draw(st.integers(1, 2)), draw(st.integers(1, 20)), *lengths), attributes


@EXAMPLES
@given(pool_cases(), st.sampled_from(OPS), st.booleans())
def test_any_pool_equals_reference(core, case, op, counts_padding) -> None:
    shape, attributes = case
    if op == "AveragePool" and counts_padding:
        attributes = {**attributes, "count_include_pad": 1}
    check(core, op, shape, attributes)


def convolution_and(op, **attributes):
    """A convolution, whose result has its channels innermost, and a pool of it."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node(op, ["c"], ["p"], **attributes),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    x, w = drawn((1, 16, 12, 12)), drawn((32, 16, 3, 3), 1)
    return model_of(nodes, {"x": x}, constants={"w": w}), {"x": x}


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("AveragePool", {"kernel_shape": [2, 2]}),
        ("GlobalAveragePool", {}),
        ("GlobalMaxPool", {}),
    ],
)
@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_pools_after_convolutions_take_their_layout(core, op, attributes, float_dtype) -> None:
    model, inputs = convolution_and(op, **attributes)
    plan = plan_of(core, model, inputs, float_dtype=float_dtype)
    pools = [step.implementation for step in plan.steps if step.origin.op == op]
    assert len(pools) == 1
    assert not pools[0].startswith("ref")
    assert_same_as_reference(core, model, inputs)


def refusal(core, op, outputs=("y",), **attributes) -> str:
    node = helper.make_node(op, ["x"], list(outputs), **attributes)
    model = model_of([node], {"x": drawn((1, 2, 6, 6))}, outputs)
    return str(core.query_network(model, "CPU"))


def test_indices_are_refused(core) -> None:
    assert "indices" in refusal(core, "MaxPool", ("y", "i"), kernel_shape=[2, 2])


def test_windows_of_padding_alone_are_refused(core) -> None:
    assert "smaller than the window" in refusal(
        core, "MaxPool", kernel_shape=[2, 2], pads=[2, 0, 0, 0]
    )


def test_an_empty_image_averages_to_zero(core) -> None:
    check(core, "GlobalAveragePool", (1, 2, 0, 3), {})


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8])
def test_the_maximum_of_padding_alone_is_the_lowest_number(core, dtype) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], pads=[1, 1, 1, 1])
    x = np.zeros((1, 3, 0, 5), dtype)
    lowest = -np.inf if dtype is np.float32 else np.iinfo(dtype).min
    for precision in ("f32", "bf16"):
        config = {"INFERENCE_PRECISION_HINT": precision}
        found = run(core, model_of([node], {"x": x}), "CPU", {"x": x}, **config)["y"]
        np.testing.assert_array_equal(found, np.full((1, 3, 1, 6), lowest, dtype))


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("shape", [(2, 20, 7, 7), (1, 3, 1), (1, 3, 0, 4)])
def test_global_maxima_keep_infinities_and_nan(core, shape, precision) -> None:
    x = np.full(shape, -np.inf, np.float32)
    x[:, 1, ..., -1:] = np.nan
    x[:, 2, ..., -1:] = np.inf
    node = helper.make_node("GlobalMaxPool", ["x"], ["y"])
    model = model_of([node], {"x": x})
    found = run(core, model, "CPU", {"x": x}, INFERENCE_PRECISION_HINT=precision)["y"]
    axes = tuple(range(2, len(shape)))
    wanted = x.max(axes, initial=-np.inf, keepdims=True)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(run(core, model, "REFERENCE", {"x": x})["y"], wanted)


SLIDING = {
    "dilated": ("MaxPool", (1, 32, 12, 12), {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    "one axis": ("MaxPool", (1, 32, 40), {"kernel_shape": [3], "pads": [1, 1]}),
    "average of one axis": ("AveragePool", (1, 32, 40), {"kernel_shape": [3], "pads": [1, 1]}),
    "beyond the padding": (
        "AveragePool",
        (1, 32, 12, 12),
        {
            "kernel_shape": [3, 3],
            "strides": [2, 2],
            "pads": [1, 1, 1, 1],
            "ceil_mode": 1,
            "count_include_pad": 1,
        },
    ),
    "dilated average": (
        "AveragePool",
        (1, 32, 12, 12),
        {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [2, 1, 0, 2]},
    ),
}


@pytest.mark.parametrize("name", SLIDING)
def test_what_onednn_would_only_loop_over_runs_natively(core, name) -> None:
    op, shape, attributes = SLIDING[name]
    model = model_of([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": drawn(shape)})
    plan = plan_of(core, model, {"x": drawn(shape)})
    assert [step.implementation for step in plan.steps] == ["native:pool"]
    assert_same_as_reference(core, model, {"x": drawn(shape)})


@pytest.mark.parametrize("name", ["dilated", "beyond the padding", "dilated average"])
@pytest.mark.parametrize("float_dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_a_native_pool_between_convolutions_costs_no_reorder(core, name, float_dtype) -> None:
    op, _, attributes = SLIDING[name]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node(op, ["a"], ["b"], **attributes),
        helper.make_node("Conv", ["b", "w"], ["y"]),
    ]
    x, w = drawn((1, 32, 12, 12)), drawn((32, 32, 1, 1), 1)
    model = model_of(nodes, {"x": x}, constants={"w": w})
    plan = plan_of(core, model, {"x": x}, float_dtype=float_dtype)
    steps = [step.implementation for step in plan.steps if step.origin.op == op]
    assert steps == ["native:pool"]
    assert len(plan.steps) == 5  # channels last, three nodes, row-major
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("power", [1, 2, 3])
def test_norms_of_dilated_windows(core, power) -> None:
    attributes = {"kernel_shape": [3, 2], "dilations": [2, 3], "p": power}
    check(core, "LpPool", (1, 4, 9, 9), attributes)
    node = helper.make_node("LpPool", ["x"], ["y"], **attributes)
    x = drawn((1, 4, 9, 9))
    plan = plan_of(core, model_of([node], {"x": x}), {"x": x})
    kernels = ["float_elementwise", "pool", "float_elementwise"]
    assert [step.implementation for step in plan.steps] == [f"native:{name}" for name in kernels]


@pytest.mark.parametrize("op", GLOBAL_OPS)
@pytest.mark.parametrize("shape", [(1, 32, 100), (1, 3, 2, 3, 2, 3)])
def test_global_pools_of_other_ranks_are_reductions(core, op, shape) -> None:
    model = model_of([helper.make_node(op, ["x"], ["y"])], {"x": drawn(shape)})
    plan = plan_of(core, model, {"x": drawn(shape)})
    assert [step.implementation for step in plan.steps] == ["native:reduce"]


def test_a_dilated_window_of_infinities_keeps_them(core) -> None:
    x = np.full((1, 2, 6, 6), -np.inf, np.float32)
    x[0, 1, 3, 3] = np.inf
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 2])
    found = run(core, model_of([node], {"x": x}), "CPU", {"x": x})["y"]
    assert np.isneginf(found[0, 0]).all()
    assert np.isposinf(found[0, 1]).sum() == 4
