"""Operators at the ends of their definitions: every device of ours gives what onnxruntime gives."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from aioinfer import Core
from aioinfer.errors import TensorError
from unit.backends.comparing import Arrays, model_of, operator, run

DEVICES = ["REFERENCE", "CPU", "OPENCL"]
NUMBERS = np.array([-math.inf, -3, -0.0, 0.5, 3, math.inf, math.nan], np.float32)


def by_onnxruntime(model: Any, inputs: Arrays) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(inputs))[0]


def assert_as_onnxruntime(
    core: Core, device: str, model: Any, inputs: Arrays, *, type_of_y: int = TensorProto.FLOAT
) -> None:
    if not any(name.startswith(device) for name in core.available_devices):
        pytest.skip(f"{device} has no device here")
    model.graph.output[0].type.tensor_type.elem_type = type_of_y
    made, wanted = run(core, model, device, inputs)["y"], by_onnxruntime(model, inputs)
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("opset", [11, 12, 13])
@pytest.mark.parametrize(
    ("low", "high"),
    list(itertools.product([None, -1, -math.inf, math.nan], [None, 1, math.inf, math.nan])),
)
def test_bounds_that_are_not_given_or_infinite(core, device, opset, low, high) -> None:
    bounds = {
        name: np.float32(bound).reshape(())
        for name, bound in (("low", low), ("high", high))
        if bound is not None
    }
    names = ["x", *(name if name in bounds else "" for name in ("low", "high"))]
    inputs = {"x": NUMBERS}
    model = model_of([operator("Clip", *names)], inputs, constants=bounds, opset=opset)
    assert_as_onnxruntime(core, device, model, inputs)


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize("given", ["low", "high"])
def test_one_bound_that_is_computed(core, device, given) -> None:
    inputs = {"x": NUMBERS, given: np.array(0.25, np.float32)}
    names = ["x", *(name if name == given else "" for name in ("low", "high"))]
    assert_as_onnxruntime(core, device, model_of([operator("Clip", *names)], inputs), inputs)


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize("bounds", [{"min": -1.0}, {"max": 1.0}, {"min": -1.0, "max": 1.0}])
def test_bounds_that_were_attributes_of_half_numbers(core, device, bounds) -> None:
    inputs = {"x": NUMBERS[1:].astype(np.float16)}
    model = model_of([operator("Clip", "x", **bounds)], inputs, opset=6)
    assert_as_onnxruntime(core, device, model, inputs, type_of_y=TensorProto.FLOAT16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(
    ("shape", "axes"), [((0, 3), [0]), ((2, 0, 3), [1]), ((2, 0), [0, 1]), ((0,), None)]
)
def test_the_mean_of_nothing(core, device, dtype, shape, axes) -> None:
    inputs = {"x": np.ones(shape, dtype)}
    constants = {} if axes is None else {"axes": np.array(axes)}
    model = model_of([operator("ReduceMean", "x", *constants)], inputs, constants=constants)
    type_of_y = TensorProto.FLOAT if dtype is np.float32 else TensorProto.INT32
    model.opset_import[0].version = 18
    assert_as_onnxruntime(core, device, model, inputs, type_of_y=type_of_y)


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
def test_numbers_as_texts(core, device, dtype) -> None:
    chance = np.random.default_rng(0)
    numbers = [0.1, 1 / 3, 100, 123456.789, 99999.99, 0.00012345678, 0.0, -0.0]
    if dtype == "float32" or dtype == "float64":
        numbers += [1e7, 123456789, 16777217, 3e38, -1e-30, *NUMBERS]
        numbers += [*(chance.standard_normal(50) * 10.0 ** chance.integers(-20, 20, 50))]
    x = np.array(numbers).clip(-6e4, 6e4) if dtype == "float16" else np.array(numbers)
    inputs = {"x": x.astype(dtype).reshape(2, -1)} if x.size % 2 == 0 else {"x": x.astype(dtype)}
    model = model_of([operator("Cast", "x", to=TensorProto.STRING)], inputs)
    assert_as_onnxruntime(core, device, model, inputs, type_of_y=TensorProto.STRING)


@pytest.mark.parametrize("device", ["REFERENCE", "CPU"])
@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((2, 0), 0), ((0, 3), 1), ((3, 0, 2), -1)])
@pytest.mark.parametrize("index", [-4, 5])
def test_indices_into_nothing_are_looked_at(core, device, is_constant, shape, axis, index) -> None:
    x, places = np.zeros(shape, np.float32), np.array([0, index])
    inputs = {"x": x} if is_constant else {"x": x, "i": places}
    constants = {"i": places} if is_constant else {}
    model = model_of([operator("Gather", "x", "i", axis=axis)], inputs, constants=constants)
    with pytest.raises(TensorError, match=r"out of (range|bounds)"):
        run(core, model, device, inputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_without_pads_that_reach_beyond_the_end(core, device, op_type) -> None:
    inputs = {"x": np.arange(2 * 5 * 4, dtype=np.float32).reshape(1, 2, 5, 4)}
    settings = {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}
    model = model_of([operator(op_type, "x", auto_pad="VALID", **settings)], inputs)
    if not any(name.startswith(device) for name in core.available_devices):
        pytest.skip(f"{device} has no device here")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    made, wanted = run(core, model, device, inputs)["y"], by_onnxruntime(model, inputs)
    assert made.shape == (1, 2, 3, 2)
    np.testing.assert_allclose(made, wanted, rtol=1e-6)
