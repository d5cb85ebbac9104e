import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.plans import implementations

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
NEWEST = 24

UNARY = {
    "Abs": {}, "Acos": {}, "Acosh": {}, "Asin": {}, "Asinh": {}, "Atan": {}, "Atanh": {},
    "Ceil": {}, "Celu": {"alpha": 0.7}, "Cos": {}, "Cosh": {}, "Elu": {"alpha": 1.3}, "Erf": {},
    "Exp": {}, "Floor": {}, "Gelu": {}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "HardSwish": {}, "IsInf": {"detect_negative": 0}, "IsNaN": {}, "LeakyRelu": {"alpha": 0.2},
    "Log": {}, "Mish": {}, "Neg": {}, "Reciprocal": {}, "Relu": {}, "Round": {},
    "Selu": {"alpha": 1.5, "gamma": 1.1}, "Shrink": {"lambd": 0.6, "bias": 0.1}, "Sigmoid": {},
    "Sign": {}, "Sin": {}, "Sinh": {}, "Softplus": {}, "Softsign": {}, "Sqrt": {},
    "Swish": {"alpha": 1.2}, "Tan": {}, "Tanh": {}, "ThresholdedRelu": {"alpha": 0.4},
}  # fmt: skip
"""Operator -> attributes."""

WEIGHTS = {"w": (16, 3, 3, 3), "s": (1, 16, 1, 1), "v": (8, 16, 3, 3)}


NARROW = ("Acos", "Asin", "Atanh")
POSITIVE = ("Acosh", "Log", "Reciprocal", "Sqrt")
STEPPED = ("Ceil", "Floor", "IsInf", "IsNaN", "Round", "Shrink", "Sign", "ThresholdedRelu")
"""Small errors of what comes in become large ones."""


def numbers(shape, seed=0):
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * 3, np.float32)


def inputs_of(x):
    """Make an input for each domain of definition."""
    narrow, positive = np.tanh(x) * np.float32(0.99), np.abs(x) + np.float32(1)
    return {"x": x, "narrow": np.asarray(narrow), "positive": np.asarray(positive)}


def source_of(op_type) -> str:
    return "narrow" if op_type in NARROW else "positive" if op_type in POSITIVE else "x"


def each(op_types, inputs, has_attributes=True):
    """Make a model of many operators, with an output for each."""
    nodes = [
        helper.make_node(
            op_type, [source_of(op_type)], [op_type], **(UNARY[op_type] if has_attributes else {})
        )
        for op_type in op_types
    ]
    return model_of(nodes, inputs, op_types, opset=NEWEST)


def one(op_type, x, **attributes):
    return model_of([helper.make_node(op_type, ["x"], ["y"], **attributes)], {"x": x}, opset=NEWEST)


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Neg", ["x"], ["n"])],
        [helper.make_node("Sub", ["zero", "x"], ["n"])],
        [helper.make_node("Add", ["x", "zero"], ["n"])],
        [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["n"])],
        [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Sub", ["zero", "a"], ["n"])],
        [helper.make_node("Ceil", ["x"], ["a"]), helper.make_node("Add", ["a", "zero"], ["n"])],
        [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Mul", ["a", "less"], ["n"])],
    ],
)
def test_zeros_have_their_sign(core, nodes) -> None:
    x = np.array([0.0, -0.0, 1.0, -2.0], np.float32)
    constants = {"zero": np.float32(0), "less": np.float32(-3)}
    model = model_of(
        [*nodes, helper.make_node("Reciprocal", ["n"], ["y"])], {"x": x}, constants=constants
    )
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("divisor", [1e-39, 3e38, np.inf, 1e-45, 1e-38])
def test_a_divisor_whose_inverse_is_no_ordinary_number(core, divisor) -> None:
    x = np.array([0, 1e-39, 1e-38, 1, 1e38, 3e38, np.inf], np.float32)
    nodes = [helper.make_node("Div", ["x", "c"], ["d"]), helper.make_node("Abs", ["d"], ["y"])]
    model = model_of(nodes, {"x": x}, constants={"c": np.float32(divisor)})
    found = run(core, model, "CPU", {"x": x})["y"]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, np.abs(x / np.float32(divisor)), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 0, 2), (2, 3, 5, 7), (3, 40000)])
def test_every_operator(core, shape) -> None:
    op_types = [name for name in UNARY if shape or name != "Softsign"]  # REFERENCE fails on it
    inputs = inputs_of(numbers(shape))
    model = each(op_types, inputs)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=2)


def test_attributes_have_defaults(core) -> None:
    inputs = inputs_of(numbers((3, 5)))
    op_types = [name for name, attributes in UNARY.items() if attributes]
    assert_same_as_reference(core, each(op_types, inputs, has_attributes=False), inputs)


def test_nan_and_infinities_are_as_numpy_has_them(core) -> None:
    inputs = inputs_of(numbers((40,)))
    for x in inputs.values():
        x[:5] = [np.nan, np.inf, -np.inf, -0.0, 0.0]
    assert_same_as_reference(core, each([*UNARY], inputs), inputs)


def test_no_slow_implementation_is_taken(core) -> None:
    inputs = inputs_of(numbers((2, 3, 8, 8)))
    found = implementations(core, each([*UNARY], inputs), inputs)
    assert len(found) == len(UNARY)
    assert all(name.startswith(("jit", "native")) for name in found)


def test_in_bfloat16(core) -> None:
    inputs = inputs_of(numbers((4, 33)))
    nodes = [helper.make_node("LeakyRelu", [name], [f"{name}_"], alpha=0.5) for name in inputs]
    op_types = [name for name in UNARY if name not in (*STEPPED, "Tan", "Sinh", "Cosh", "Exp")]
    for name in op_types:  # between two operators, so that what comes in and out is held narrow
        nodes.append(helper.make_node(name, [source_of(name) + "_"], [f"{name}_"], **UNARY[name]))
        nodes.append(helper.make_node("Concat", [f"{name}_", f"{name}_"], [name], axis=0))
    inputs["positive"] = inputs["positive"] + np.float32(1)
    inputs["narrow"] = inputs["narrow"] * np.float32(0.7)
    model = model_of(nodes, inputs, op_types, opset=NEWEST)
    assert_same_as_reference(core, model, inputs, bound=BF16_BOUND, INFERENCE_PRECISION_HINT="bf16")


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(core, approximate) -> None:
    x = np.linspace(-9, 9, 501, dtype=np.float32)
    assert_same_as_reference(core, one("Gelu", x, approximate=approximate), {"x": x})


@pytest.mark.parametrize("op_type", ["Abs", "Neg", "Relu", "Sign"])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integers(core, op_type, dtype) -> None:
    x = np.arange(-6, 6).astype(dtype)
    assert_same_as_reference(core, one(op_type, x), {"x": x})


BOUNDS = [(None, None), (-1, None), (None, 2), (-1, 2), (2, -1), (0, np.inf)]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_clip(core, bounds, is_constant, dtype) -> None:
    if dtype is np.int32 and np.inf in bounds:
        bounds = (0, 100)
    x = np.arange(-20, 20).reshape(5, 8).astype(dtype)
    given = {
        name: np.asarray(bound, dtype)
        for name, bound in zip(("low", "high"), bounds, strict=True)
        if bound is not None
    }
    names = ["x", *(name if name in given else "" for name in ("low", "high"))]
    inputs = {"x": x} if is_constant else {"x": x, **given}
    constants = given if is_constant else {}
    model = model_of([helper.make_node("Clip", names, ["y"])], inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)


def test_clip_keeps_nan(core) -> None:
    x = np.array([np.nan, 9, -9], np.float32)
    bounds = {"low": np.float32(0).reshape(()), "high": np.float32(6).reshape(())}
    node = helper.make_node("Clip", ["x", "low", "high"], ["y"])
    assert_same_as_reference(core, model_of([node], {"x": x}, constants=bounds), {"x": x})


@EXAMPLES
@given(
    st.lists(st.sampled_from(sorted(UNARY.keys() - {*STEPPED, "Softsign", "Acosh"})), max_size=3),
    st.lists(st.integers(0, 9), max_size=5),
    st.integers(0, 99),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_operators_in_a_row(core, op_types, shape, seed, dynamic, threads) -> None:
    nodes, last = [helper.make_node("Sigmoid", ["x"], ["v"])], "v"
    for index, op_type in enumerate(op_types):  # each on what is in the domain of all of them
        nodes.append(helper.make_node(op_type, [last], [f"a{index}"], **UNARY[op_type]))
        nodes.append(helper.make_node("Sigmoid", [f"a{index}"], [f"b{index}"]))
        last = f"b{index}"
    nodes.append(helper.make_node("Exp", [last], ["y"]))
    x = numbers(shape, seed)
    model = model_of(nodes, {"x": x}, opset=NEWEST, dynamic=dynamic)
    assert_same_as_reference(core, model, {"x": x}, INFERENCE_NUM_THREADS=threads)


def test_a_fused_group_is_one_step(core) -> None:
    x = numbers((2, 8, 5, 5))
    scale = np.random.default_rng(1).standard_normal((8, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Sub", ["b", "t"], ["c"]),
        helper.make_node("Erf", ["c"], ["d"]),
        helper.make_node("Tanh", ["d"], ["y"]),
    ]
    inputs = {"x": x, "t": numbers((2, 1, 5, 5), 2)}
    model = model_of(nodes, inputs, constants={"scale": scale})
    assert_same_as_reference(core, model, inputs)
    found = implementations(core, model, inputs)
    assert found[0] == "native:float_elementwise"
    assert len(found) <= 3


def test_layouts_run_on_through_elementwise_operators(core) -> None:
    x = numbers((1, 3, 9, 9))
    weights = {name: numbers(shape) for name, shape in WEIGHTS.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "s"], ["c"]),
        helper.make_node("Conv", ["c", "v"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, constants=weights)
    assert_same_as_reference(core, model, {"x": x})
    found = implementations(core, model, {"x": x})
    assert sum("native:float_elementwise" in name for name in found) in (1, 2)
    assert not any("ref:any" in name for name in found)


@pytest.mark.parametrize("channels", [16, 24, 3])
def test_blocked_layouts_with_and_without_padding(core, channels) -> None:
    x = numbers((2, channels, 6, 6))
    for op_type in ("Exp", "Cos", "Relu"):
        nodes = [
            helper.make_node("LRN", ["x"], ["a"], size=3),
            helper.make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2]),
            helper.make_node(op_type, ["b"], ["c"]),
            helper.make_node("Add", ["c", "b"], ["d"]),
            helper.make_node("AveragePool", ["d"], ["y"], kernel_shape=[2, 2]),
        ]
        assert_same_as_reference(core, model_of(nodes, {"x": x}), {"x": x})
