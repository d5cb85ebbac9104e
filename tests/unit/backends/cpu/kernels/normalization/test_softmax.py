"""Softmax and LogSoftmax equal REFERENCE along every axis."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of, run

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
OPS = ["Softmax", "LogSoftmax"]


def values(shape, seed=0):
    return np.random.default_rng(seed).normal(0, 4, shape).astype(np.float32)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -2])
@pytest.mark.parametrize("dynamic", [False, True])
def test_along_every_axis(core, op, axis, dynamic) -> None:
    x = values((3, 70, 5))
    node = helper.make_node(op, ["x"], ["y"], axis=axis)
    assert_same_as_reference(core, model_of([node], {"x": x}, dynamic=dynamic), {"x": x})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 0, 3), (1, 1, 1), (2, 3, 4, 5, 2)])
def test_small_and_empty(core, op, shape) -> None:
    x = values(shape)
    model = model_of([helper.make_node(op, ["x"], ["y"])], {"x": x})
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("op", OPS)
def test_in_place_between_steps(core, op) -> None:
    x = values((4, 33))
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(op, ["r"], ["s"], axis=0),
        helper.make_node("Exp", ["s"], ["y"]),
    ]
    assert_same_as_reference(core, model_of(nodes, {"x": x}), {"x": x})


def test_numbers_without_bound(core) -> None:
    x = np.array(
        [
            [-np.inf, 0.0, 1.0],
            [np.inf, 0.0, 1.0],
            [-np.inf, -np.inf, -np.inf],
            [np.nan, 0.0, 1.0],
            [3e38, -3e38, 3e38],
            [-200.0, 0.0, -1e-30],
        ],
        np.float32,
    )
    for axis in (0, 1):
        node = helper.make_node("Softmax", ["x"], ["y"], axis=axis)
        assert_same_as_reference(core, model_of([node], {"x": x}), {"x": x})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("bits", [0x7FC00001, 0x7FC000FF, 0x7FFFFFFF, 0xFFC00101])
def test_every_nan_is_one(core, op, axis, bits) -> None:
    x = values((33, 33))
    x[4, 5] = np.uint32(bits).view(np.float32)
    model = model_of([helper.make_node(op, ["x"], ["y"], axis=axis)], {"x": x})
    assert_same_as_reference(core, model, {"x": x})


def test_every_power_is_near(core) -> None:
    x = np.linspace(-95, 0, 100_001, dtype=np.float32)
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    found = run(core, model_of([node], {"x": x}), "CPU", {"x": x})["y"]
    wanted = np.exp(x.astype(np.float64))
    wanted /= wanted.sum()
    near = x > -80
    assert np.abs(found[near] / wanted[near] - 1).max() < 2e-6
    assert np.abs(found - wanted).max() < 1e-9


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@EXAMPLES
@given(
    op=st.sampled_from(OPS),
    shape=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    data=st.data(),
    threads=st.sampled_from([1, 2]),
)
def test_random_shapes(core, op, shape, data, precision, threads) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = values(shape)
    model = model_of([helper.make_node(op, ["x"], ["y"], axis=axis)], {"x": x})
    bound = 1e-5 if precision == "f32" else BF16_BOUND
    config = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
    assert_same_as_reference(core, model, {"x": x}, bound=bound, **config)


@pytest.mark.parametrize("axis", [0, 1])
def test_bfloat16_between_steps(core, axis) -> None:
    x = values((65, 130))
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Softmax", ["r"], ["s"], axis=axis),
        helper.make_node("Sqrt", ["s"], ["y"]),
    ]
    config = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": 2}
    model = model_of(nodes, {"x": x})
    assert_same_as_reference(core, model, {"x": x}, bound=BF16_BOUND, **config)
