"""NaN and infinities on CPU: everywhere with CPU_KEEP_NAN, and where they cost nothing without."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from aioinfer import Core
from unit.backends.cpu.comparing import Arrays, model_of, run

SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, -1, 1, -100, 50, 1e-30], np.float32)
FOLLOWERS = {
    "Relu": {},
    "Clip": {"lo": np.float32(-2), "hi": np.float32(3)},
    "Clip below": {"lo": np.float32(-2)},
    "Max": {"k": np.float32(0.5)},
    "Min": {"k": np.float32(0.5)},
    "HardSigmoid": {},
    "HardSwish": {},
    "Exp": {},
    "Elu": {},
    "LeakyRelu": {},
    "PRelu": {"k": np.float32(np.nan)},
    "Sigmoid": {},
    "Tanh": {},
    "Gelu": {},
    "Softplus": {},
}
BASES = {
    "Conv": ((1, 20, 5, 5), np.ones((20, 1, 1, 1), np.float32), {"group": 20}),
    "ConvTranspose": ((1, 20, 5, 5), np.ones((20, 1, 1, 1), np.float32), {"group": 20}),
    "MatMul": ((40, 1), np.ones((1, 128), np.float32), {}),
    "nothing": ((3, 7, 10), None, {}),
}


def special(shape: tuple[int, ...]) -> np.ndarray:
    return np.resize(SPECIAL, shape)


def assert_same(
    core: Core, model: object, inputs: Arrays, *, near: float = 1e-6, **config: object
) -> None:
    wanted = run(core, model, "REFERENCE", inputs)["y"]
    found = run(core, model, "CPU", inputs, **config)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=near)


def follower_model(base: str, name: str) -> tuple[object, Arrays]:
    """Put an operator behind a base; its other inputs are constants."""
    shape, weights, attributes = BASES[base]
    constants = {key: np.asarray(number) for key, number in FOLLOWERS[name].items()}
    nodes, source = [], "x"
    if weights is not None:
        constants["w"] = weights
        nodes, source = [helper.make_node(base, ["x", "w"], ["u"], **attributes)], "u"
    others = [key for key in constants if key != "w"]
    nodes.append(helper.make_node(name.split()[0], [source, *others], ["y"]))
    inputs = {"x": special(shape)}
    return model_of(nodes, inputs, constants=constants), inputs


@pytest.mark.parametrize("name", FOLLOWERS)
@pytest.mark.parametrize("base", BASES)
def test_with_the_property_what_is_fused_elsewhere_keeps_them(core, base, name) -> None:
    model, inputs = follower_model(base, name)
    assert_same(core, model, inputs, CPU_KEEP_NAN=True)


def dynamic_model(name: str, x: np.ndarray) -> object:
    """Put an operator behind a product of stored numbers whose scale the run finds."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "sw"], ["f"]),
        helper.make_node("Mul", ["c", "f"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["u"]),
    ]
    nodes.append(helper.make_node(name.split()[0], ["u", *FOLLOWERS[name]], ["y"]))
    constants = {key: np.asarray(number) for key, number in FOLLOWERS[name].items()}
    constants["w"] = np.arange(-80, 80).reshape(10, 16).astype(np.int8)
    constants["sw"] = np.full(16, 0.01, np.float32)
    constants["b"] = np.linspace(-1, 1, 16, dtype=np.float32)
    return model_of(nodes, {"x": x}, constants=constants)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1.0])
@pytest.mark.parametrize("name", FOLLOWERS)
def test_with_the_property_products_of_stored_numbers_keep_them(core, name, number) -> None:
    x = np.linspace(-3, 3, 70, dtype=np.float32).reshape(7, 10)
    x[3, 5] = number
    assert_same(core, dynamic_model(name, x), {"x": x}, near=1e-4, CPU_KEEP_NAN=True)


@pytest.mark.parametrize("name", FOLLOWERS)
def test_operators_that_are_not_fused_keep_them_by_default(core, name) -> None:
    model, inputs = follower_model("nothing", name)
    assert_same(core, model, inputs)


def test_a_relu_that_finds_channels_in_padded_blocks_keeps_them_by_default(core) -> None:
    weights = np.random.default_rng(0).standard_normal((19, 20, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["u"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["u"], ["r"]),
        helper.make_node("Sub", ["r", "u"], ["y"]),
    ]
    x = np.random.default_rng(1).standard_normal((1, 20, 9, 9)).astype(np.float32)
    x[0, 0, 4, 4] = np.nan
    model = model_of(nodes, {"x": x}, constants={"w": weights})
    assert_same(core, model, {"x": x}, near=1e-4)


POOLS = {
    "channels inside": ((1, 32, 9, 9), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "strides": ((2, 3, 9, 8), {"kernel_shape": [2, 3], "strides": [2, 3]}),
    "one axis": ((2, 3, 11), {"kernel_shape": [3]}),
    "three axes": (
        (1, 2, 5, 5, 5),
        {"kernel_shape": [2, 2, 2], "ceil_mode": 1, "strides": [2] * 3},
    ),
    "dilated": ((1, 16, 9, 9), {"kernel_shape": [2, 2], "dilations": [3, 2]}),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("is_all_lowest", [True, False])
def test_with_the_property_windows_keep_them(core, name, is_all_lowest) -> None:
    shape, attributes = POOLS[name]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[np.random.default_rng(1).random(shape) < 0.1] = np.nan
    if is_all_lowest:
        x[...] = -np.inf
    node = helper.make_node("MaxPool", ["x"], ["y"], **attributes)
    assert_same(core, model_of([node], {"x": x}), {"x": x}, CPU_KEEP_NAN=True)


def test_without_the_property_a_relu_is_part_of_the_convolution(core) -> None:
    model, inputs = follower_model("Conv", "Relu")
    for keep_nan, ops in ((False, ["Conv"]), (True, ["Conv", "Relu"])):
        with core.load_network(model, "CPU", {"CPU_KEEP_NAN": keep_nan}) as network:
            network.create_infer_request().infer_sync(inputs)
            assert [node.op_type for node in network.runtime_graph().nodes] == ops


@pytest.mark.parametrize(("groups", "read", "made"), [(2, 4, 2), (4, 4, 4), (1, 64, 16)], ids=str)
def test_what_a_transposed_window_leaves_alone_stays_a_number(core, groups, read, made) -> None:
    """Of 3 x 3 at strides of 2, which phases fill up with zeros where the property is not set."""
    x = np.ones((1, read, 6, 6), np.float32)
    x[0, 0, 2, 3] = np.inf
    weights = np.ones((read, made // groups, 3, 3), np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], group=groups)
    model = model_of([node], {"x": x}, constants={"w": weights})
    assert_same(core, model, {"x": x}, CPU_KEEP_NAN=True)
