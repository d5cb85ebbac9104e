"""Every elementwise operator, alone, against REFERENCE."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from aioinfer import Core
from aioinfer.backends.accelerator.elementwise.elementwise_operators import ONNX_OPERATORS
from exhaustive import all_but
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

ATTRIBUTES = {
    "BitShift": {"direction": "LEFT"},
    "Cast": {"to": TensorProto.INT32},
    "Elu": {"alpha": 0.7},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "LeakyRelu": {"alpha": 0.2},
    "Mod": {"fmod": 1},
    "Shrink": {"lambd": 0.6, "bias": 0.2},
    "ThresholdedRelu": {"alpha": 0.4},
}
TWO = {
    *("Add", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean"),
    *("Min", "Mod", "Mul", "PRelu", "Pow", "Sub", "Sum"),
}
BOOLEAN = {"And": 2, "Or": 2, "Xor": 2, "Not": 1}
BITS = {"BitwiseAnd": 2, "BitwiseOr": 2, "BitwiseXor": 2, "BitwiseNot": 1, "BitShift": 2}
ABOVE_ONE = {"Acosh"}
POSITIVE = {"Log", "Sqrt", "Pow"}
WITHIN_ONE = {"Acos", "Asin", "Atanh"}
FLOATS = sorted(ONNX_OPERATORS - BOOLEAN.keys() - BITS.keys() - {"Where", "Clip"})


def numbers(op_type: str, seed: int, shape: tuple[int, ...]) -> np.ndarray:
    made = np.random.default_rng(seed).uniform(-3, 3, shape).astype(np.float32)
    if op_type in WITHIN_ONE:
        return made / 4
    if op_type in POSITIVE | ABOVE_ONE:
        return np.abs(made) + 1
    return made


@pytest.mark.parametrize("op_type", FLOATS)
def test_an_operator_on_floats_is_right(op_type: str, core: Core) -> None:
    inputs = {"x": numbers(op_type, 1, (3, 70))}
    if op_type in TWO:
        inputs["z"] = numbers(op_type, 2, (70,))
    node = operator(op_type, *inputs, **ATTRIBUTES.get(op_type, {}))
    opset = 24 if op_type == "Swish" else 21
    assert_same_as_reference(core, model_of([node], inputs, opset=opset), inputs)


@pytest.mark.parametrize("op_type", sorted(BOOLEAN))
def test_an_operator_on_booleans_is_right(op_type: str, core: Core) -> None:
    random = np.random.default_rng(3)
    names = "xz"[: BOOLEAN[op_type]]
    inputs = {name: random.random((4, 5)) > 0.5 for name in names}
    assert_same_as_reference(core, model_of([operator(op_type, *names)], inputs), inputs)


@pytest.mark.parametrize("op_type", sorted(BITS))
def test_an_operator_on_bits_is_right(op_type: str, core: Core) -> None:
    random = np.random.default_rng(4)
    names = "xz"[: BITS[op_type]]
    inputs = {name: random.integers(0, 9, (4, 5)).astype(np.uint32) for name in names}
    node = operator(op_type, *names, **ATTRIBUTES.get(op_type, {}))
    assert_same_as_reference(core, model_of([node], inputs), inputs)


@pytest.mark.parametrize("dtype", all_but([np.int64], [np.int8, np.int32, np.int64, np.uint8]))
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal"])
def test_integers_are_exact(op_type: str, dtype: type, core: Core) -> None:
    random = np.random.default_rng(5)
    inputs = {"x": random.integers(0, 100, 60).astype(dtype)}
    inputs["z"] = random.integers(1, 9, 60).astype(dtype)
    assert_same_as_reference(core, model_of([operator(op_type, *inputs)], inputs), inputs)


def test_division_of_integers_by_zero_brings_nobody_down(core: Core) -> None:
    inputs = {"x": np.array([7, -7], np.int32), "z": np.array([0, -1], np.int32)}
    with core.load_network(model_of([operator("Div", "x", "z")], inputs), "OPENCL") as network:
        result = network.create_infer_request().infer_sync(inputs)["y"]
    np.testing.assert_array_equal(result, [0, 7])


@pytest.mark.parametrize("bounds", [("low", "high"), ("low",), ("", "high")])
def test_clip_takes_the_bounds_that_are_given(bounds: tuple[str, ...], core: Core) -> None:
    inputs = {"x": numbers("Clip", 6, (50,))}
    constants = {"low": np.float32(-1), "high": np.float32(1.5)}
    used = {name: np.asarray(constants[name]) for name in bounds if name}
    model = model_of([operator("Clip", "x", *bounds)], inputs, constants=used)
    assert_same_as_reference(core, model, inputs)


def test_where_broadcasts_all_three(core: Core) -> None:
    random = np.random.default_rng(7)
    inputs = {
        "c": random.random((4, 1)) > 0.5,
        "x": random.random((1, 5)).astype(np.float32),
        "z": random.random((3, 4, 5)).astype(np.float32),
    }
    assert_same_as_reference(core, model_of([operator("Where", "c", "x", "z")], inputs), inputs)


def test_nan_goes_where_numpy_lets_it_go(core: Core) -> None:
    inputs = {"x": np.array([np.nan, 1, -np.inf], np.float32), "z": np.float32([0, np.nan, 2])}
    for op_type in ("Max", "Min", "Add"):
        assert_same_as_reference(core, model_of([operator(op_type, "x", "z")], inputs), inputs)
    inputs = {"x": inputs["x"]}
    for op_type in ("Relu", "HardSigmoid", "HardSwish"):
        assert_same_as_reference(core, model_of([operator(op_type, "x")], inputs), inputs)


def test_float16_is_computed_where_there_is_no_arithmetic_for_it(core: Core) -> None:
    inputs = {"x": numbers("Add", 8, (3, 7)).astype(np.float16)}
    nodes = [operator("Exp", "x", outputs=["t"]), operator("Add", "t", "x")]
    assert_same_as_reference(core, model_of(nodes, inputs), inputs, bound=4e-3)
