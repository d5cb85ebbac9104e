"""What CPU takes of rarer forms gives onnxruntime's results, and a query says so before a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.registry import KERNELS
from aioinfer.runtime.graph import Node
from aioinfer.runtime.type_inference.rules import find_rule

RANDOM = np.random.default_rng(5)
Arrays = Mapping[str, np.ndarray]


def model_of(
    node: Any, given: Arrays, result: int, constants: Arrays | None = None, *, is_open: bool
) -> bytes:
    """Make a model of one node, whose inputs have lengths or names for them."""
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}_{axis}" for axis in range(array.ndim)] if is_open else array.shape,
        )
        for name, array in given.items()
    ]
    kept = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    outputs = [helper.make_tensor_value_info("y", result, None)]
    graph = helper.make_graph([node], "g", inputs, outputs, kept)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return bytes(made.SerializeToString())


def node_of(op_type: str, domain: str) -> Node:
    """Make a node that only has an operator."""
    return Node(op_type, [], [], {}, name="n", domain=domain)


def assert_as_onnxruntime(core: Core, model: bytes, given: Arrays, rtol: float = 1e-5) -> None:
    """Compare a model's output y, of a type and shape, on CPU with onnxruntime's."""
    (wanted,) = onnxruntime.InferenceSession(model).run(["y"], dict(given))
    assert all(answer.supported for answer in core.query_network(model, "CPU").values())
    with core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync(dict(given))["y"]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)


EQUATIONS = {
    "ii->i": [(4, 4)],
    "ii": [(4, 4)],
    "iij->j": [(3, 3, 5)],
    "...ii->...i": [(2, 3, 4, 4)],
    "ii,i->i": [(3, 3), (3,)],
    "iij,jk->ik": [(3, 3, 4), (4, 2)],
    "ij->": [(3, 4)],
    "ij,jk->ik": [(3, 4), (4, 5)],
    "...ij,...jk->...ik": [(2, 2, 3, 4), (2, 2, 4, 5)],
    "bij,bjk,bkl->bil": [(2, 3, 4), (2, 4, 5), (2, 5, 2)],
    "i,j,k->ijk": [(2,), (3,), (4,)],
}


@pytest.mark.parametrize("equation", sorted(EQUATIONS))
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("is_open", [False, True])
def test_einsum(core: Core, equation: str, dtype: type, is_open: bool) -> None:
    given = {
        f"x{index}": (RANDOM.normal(size=shape) * 3).astype(dtype)
        for index, shape in enumerate(EQUATIONS[equation])
    }
    node = helper.make_node("Einsum", list(given), ["y"], equation=equation)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    assert_as_onnxruntime(core, model_of(node, given, kind, is_open=is_open), given)


@pytest.mark.parametrize("data", [np.uint8, np.int8])
@pytest.mark.parametrize("stored", [np.uint8, np.int8])
@pytest.mark.parametrize("has_points", [False, True])
@pytest.mark.parametrize(
    ("channels", "results", "groups", "window"),
    [(64, 5, 1, 3), (300, 4, 1, 1), (128, 6, 2, 3), (64, 64, 64, 3)],
)
def test_integer_convolution_of_many_channels(
    core: Core,
    data: type,
    stored: type,
    has_points: bool,
    channels: int,
    results: int,
    groups: int,
    window: int,
) -> None:
    """Numbers at the ends of their types, whose sums float32 does not hold."""
    x = RANDOM.choice([np.iinfo(data).min, np.iinfo(data).max], (1, channels, 6, 7), p=[0.1, 0.9])
    w = RANDOM.choice(
        [np.iinfo(stored).min, np.iinfo(stored).max],
        (results, channels // groups, window, window),
        p=[0.1, 0.9],
    )
    given = {"x": x.astype(data)}
    constants = {"w": w.astype(stored)}
    if has_points:
        constants |= {"a": np.asarray(7, data), "b": np.asarray(3, stored)}
    node = helper.make_node(
        "ConvInteger", ["x", *constants], ["y"], group=groups, pads=[1, 1, 1, 1], strides=[2, 1]
    )
    for is_open in (False, True):
        model = model_of(node, given, TensorProto.INT32, constants, is_open=is_open)
        assert_as_onnxruntime(core, model, given, rtol=0)


@pytest.mark.parametrize("seed", range(12))
def test_integer_convolution_of_windows_with_many_taps(core: Core, seed: int) -> None:
    """More than 258 products, of which float32 holds no sum: windows are cut into pieces."""
    chance = np.random.default_rng(seed)
    groups, depth = int(chance.integers(1, 3)), int(chance.integers(1, 3))
    window, strides = (chance.integers(*bounds, 2).tolist() for bounds in ((14, 30), (1, 4)))
    attributes: dict[str, Any] = {"strides": strides, "group": groups}
    pads = [0] * 4
    if seed % 3:
        attributes["auto_pad"] = ["VALID", "SAME_UPPER", "SAME_LOWER"][seed // 3 % 3]
    else:
        attributes["pads"] = pads = chance.integers(0, 20, 4).tolist()
        attributes["dilations"] = chance.integers(1, 3, 2).tolist()
    reaches = [
        (size - 1) * dilation + 1
        for size, dilation in zip(window, attributes.get("dilations", [1, 1]), strict=True)
    ]
    lengths = [
        max(3, reach - begin - end + int(chance.integers(0, 9)))
        for reach, begin, end in zip(reaches, pads[:2], pads[2:], strict=True)
    ]
    given = {"x": chance.choice([0, 255], (2, groups * depth, *lengths)).astype(np.uint8)}
    constants = {
        "w": chance.choice([-128, 127], (2 * groups, depth, *window), p=[0.1, 0.9]).astype(np.int8),
        "a": np.asarray(7, np.uint8),
    }
    node = helper.make_node("ConvInteger", ["x", *constants], ["y"], **attributes)
    model = model_of(node, given, TensorProto.INT32, constants, is_open=False)
    assert_as_onnxruntime(core, model, given, rtol=0)


@pytest.mark.parametrize("op", ["Shape", "Size"])
@pytest.mark.parametrize("is_open", [False, True])
def test_what_asks_a_text_for_its_shape_alone(core: Core, op: str, is_open: bool) -> None:
    given = {"x": np.array([["a", "b"], ["c", "d"], ["e", "f"]], object)}
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n", "m"] if is_open else [3, 2])
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT64, None)]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [x], outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert_as_onnxruntime(core, made.SerializeToString(), given)


def test_every_kernel_of_a_domain_of_onnx_has_a_type_rule() -> None:
    """Without one the shape of its result is open where lengths are, and loads refuse that."""
    missing = [
        op
        for domain, op in KERNELS.kernels
        if domain in ("", "ai.onnx.ml") and find_rule(node_of(op, domain)) is None
    ]
    assert missing == []
