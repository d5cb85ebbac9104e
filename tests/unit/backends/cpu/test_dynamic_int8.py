"""Products whose scales the run finds: DynamicQuantizeLinear, MatMulInteger and ConvInteger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.backends.cpu.kernels.registry import KERNELS
from aioinfer.errors import UnsupportedOpError
from aioinfer.runtime.graph import DType, Graph, Node, TensorType, Value
from unit.backends.cpu.comparing import skip_without_int8
from unit.backends.cpu.quantized_models import Arrays, bert_layer, perceptron

RANDOM = np.random.default_rng(11)
TYPES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.uint8): TensorProto.UINT8,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(np.int32): TensorProto.INT32,
}


@pytest.fixture
def int8(core: Core) -> None:
    skip_without_int8(core)


def model_of(
    nodes: Sequence[Any], given: Mapping[str, np.ndarray], constants: Arrays, *outputs: str
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "dynamic",
        [
            helper.make_tensor_value_info(name, TYPES[array.dtype], array.shape)
            for name, array in given.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def run(
    core: Core, model: Any, device: str, given: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    with core.load_network(model, device) as network:
        found = network.create_infer_request().infer_sync(dict(given))
        return {name: np.asarray(array) for name, array in found.items()}


def operators_on(core: Core, model: Any) -> list[str]:
    with core.load_network(model, "CPU") as network:
        return [node.op_type for node in network.runtime_graph().nodes]


def stored(dtype: Any, *shape: int) -> np.ndarray:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RANDOM.integers(low, high + 1, shape).astype(dtype)


ODD = {
    "numbers": RANDOM.normal(size=(3, 40)),
    "many": RANDOM.normal(size=(5, 9001)),
    "above zero": RANDOM.uniform(3, 4, size=70),
    "below zero": RANDOM.uniform(-4, -3, size=70),
    "zeros": np.zeros(33),
    "one": np.array(2.5),
    "none": np.zeros((0, 4)),
    "large": np.array([3e38, -3e38, 1.0]),
    "tiny": np.array([1e-45, 0.0, 3e-45]),
    "halves": np.arange(256) / 2,
    "no number": np.array([1.0, np.nan, -2.0]),
    "infinite": np.array([np.inf, 1.0, -2.0]),
    "infinite below": np.array([-np.inf, 1.0, -2.0]),
}


@pytest.mark.parametrize("name", ODD)
def test_numbers_are_stored_as_the_reference_stores_them(core: Core, name: str) -> None:
    given = {"x": ODD[name].astype(np.float32)}
    outputs = ["q", "scale", "zero"]
    model = model_of(
        [helper.make_node("DynamicQuantizeLinear", ["x"], outputs)], given, {}, *outputs
    )
    found, wanted = (run(core, model, device, given) for device in ("CPU", "REFERENCE"))
    for output in outputs:
        assert found[output].dtype == wanted[output].dtype
        np.testing.assert_array_equal(found[output], wanted[output], err_msg=output)


def test_outputs_that_nothing_reads_are_made_nowhere(core: Core) -> None:
    given = {"x": RANDOM.normal(size=(4, 5)).astype(np.float32)}
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"])
    model = model_of([node], given, {}, "scale")
    found, wanted = (run(core, model, device, given) for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(found["scale"], wanted["scale"])


@pytest.mark.parametrize("right", [np.int8, np.uint8])
@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("points", ["none", "one", "each"])
def test_sums_of_whole_numbers_are_exact(core: Core, left: Any, right: Any, points: str) -> None:
    given = {"a": stored(left, 2, 3, 700)}
    shapes: dict[str, Any] = {"none": None, "one": ((), ()), "each": ((), (5,))}
    constants: Arrays = {"b": stored(right, 700, 5)}
    names = ["a", "b"]
    if shapes[points] is not None:
        for name, dtype, shape in zip(("za", "zb"), (left, right), shapes[points], strict=True):
            constants[name] = stored(dtype, *shape)
            names.append(name)
    model = model_of([helper.make_node("MatMulInteger", names, ["y"])], given, constants, "y")
    found, wanted = (run(core, model, device, given)["y"] for device in ("CPU", "REFERENCE"))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER"])
@pytest.mark.parametrize("channels", [8, 300])
def test_convolutions_of_whole_numbers(core: Core, auto_pad: str, channels: int) -> None:
    given = {"x": stored(np.uint8, 1, channels, 6, 5)}
    constants: Arrays = {
        "w": stored(np.int8, 4, channels, 3, 3),
        "zx": np.array(131, np.uint8),
        "zw": np.array([3, 0, -5, 7], np.int8),
    }
    pads = {"pads": [1, 0, 1, 2]} if auto_pad == "NOTSET" else {"auto_pad": auto_pad}
    conv = helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["s"], "conv", **pads)
    cast = helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT)
    model = model_of([conv, cast], given, constants, "y")
    found, wanted = (run(core, model, device, given)["y"] for device in ("CPU", "REFERENCE"))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    whole = model_of([conv], given, constants, "s")
    found, wanted = (run(core, whole, device, given)["s"] for device in ("CPU", "REFERENCE"))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, wanted)


def dynamic(model: onnx.ModelProto, folder: Path, weights: str = "QInt8", **options: Any) -> Path:
    tools = pytest.importorskip("onnxruntime.quantization")
    source, target = folder / "float.onnx", folder / "dynamic.onnx"
    onnx.save(model, source)
    tools.quantize_dynamic(source, target, weight_type=tools.QuantType[weights], **options)
    return target


MODELS = {"perceptron": (perceptron, (5, 33), 3), "bert layer": (bert_layer, (1, 12, 32), 7)}


@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_what_the_quantizer_leaves_to_the_run(
    core: Core, tmp_path: Path, kind: str, per_channel: bool, weights: str
) -> None:
    make, shape, _ = MODELS[kind]
    path = dynamic(make(), tmp_path, weights, per_channel=per_channel)
    given = {"x": RANDOM.normal(size=shape).astype(np.float32)}
    found, wanted = (run(core, path, device, given)["y"] for device in ("CPU", "REFERENCE"))
    # A number halfway between two quanta may go to the other one, and on through the layers.
    assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()


@pytest.mark.usefixtures("int8")
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_products_with_their_scales_and_biases_are_one_node(
    core: Core, tmp_path: Path, kind: str, per_channel: bool
) -> None:
    make, _, count = MODELS[kind]
    found = operators_on(core, dynamic(make(), tmp_path, per_channel=per_channel))
    assert found.count("Int8MatMul") == count
    assert "MatMulInteger" not in found
    assert "DequantizeLinear" not in found


def layer(
    columns: np.ndarray, *, bias: bool = True, is_used_twice: bool = False
) -> onnx.ModelProto:
    constants: Arrays = {
        "w": stored(np.int8, 24, 16),
        "sw": columns.astype(np.float32),
        "b": RANDOM.normal(size=16).astype(np.float32),
    }
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"], "product"),
        helper.make_node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "sw"], ["f"]),
        helper.make_node("Mul", ["c", "f"], ["m"]),
        helper.make_node("Add", ["b", "m"] if bias else ["m", "m"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    given = {"x": np.zeros((7, 24), np.float32)}
    return model_of(nodes, given, constants, "y", *(["c"] if is_used_twice else []))


@pytest.mark.parametrize("columns", [np.array(0.02), np.full(1, 0.02), np.linspace(0.01, 0.05, 16)])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"is_used_twice": True}])
def test_one_layer_is_right(core: Core, columns: np.ndarray, options: dict[str, bool]) -> None:
    model = layer(columns, **options)
    for scale in (1.0, 1e-3, 0.0):
        given = {"x": scale * RANDOM.normal(size=(7, 24)).astype(np.float32)}
        found, wanted = (run(core, model, device, given) for device in ("CPU", "REFERENCE"))
        for name, array in wanted.items():
            bound = 1e-5 * max(float(np.abs(array).max()), 1e-6)
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=bound)


@pytest.mark.usefixtures("int8")
def test_rows_that_come_and_go_are_replayed(core: Core, tmp_path: Path) -> None:
    path = dynamic(perceptron("rows"), tmp_path)
    with core.load_network(path, "CPU") as cpu, core.load_network(path, "REFERENCE") as reference:
        for rows in (4, 1, 9, 3):
            given = {"x": RANDOM.normal(size=(rows, 33)).astype(np.float32)}
            found, wanted = (
                network.create_infer_request().infer_sync(given)["y"]
                for network in (cpu, reference)
            )
            assert np.abs(found - wanted).max() <= 0.02 * np.abs(wanted).max()


@pytest.mark.usefixtures("int8")
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_stays_one(core: Core, number: float) -> None:
    given = {"x": RANDOM.normal(size=(7, 24)).astype(np.float32)}
    given["x"][3, 5] = number
    model = layer(np.array(0.02))
    del model.graph.node[-1]
    model.graph.output[0].name = "a"
    found, wanted = (run(core, model, device, given)["a"] for device in ("CPU", "REFERENCE"))
    assert not np.isfinite(wanted).any()
    assert not np.isfinite(found).any()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_scale_may_have_as_many_axes_as_what_it_scales(
    core: Core, shape: tuple[int, ...]
) -> None:
    given = {"x": RANDOM.normal(size=(4, 6)).astype(np.float32)}
    constants: Arrays = {
        "scale": np.full(shape, 0.1, np.float32),
        "zero": np.full(shape, 3, np.uint8),
        "w": stored(np.int8, 6, 5),
        "none": np.zeros(shape, np.int8),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "scale", "none"], ["v"]),
        helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]
    model = model_of(nodes, given, constants, "d", "y")
    found, wanted = (run(core, model, device, given) for device in ("CPU", "REFERENCE"))
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5)


def test_what_is_refused_is_named_as_in_the_file() -> None:
    graph = Graph("g", [Value("x", TensorType(DType.FLOAT32, (1,)))])
    (x,) = graph.inputs
    graph.append(Node("Swirl", [x], [Value("y")], name="product_part", fused_from=["product"]))
    with pytest.raises(UnsupportedOpError, match="'product'") as caught:
        KERNELS.refuse_unsupported(graph, "CPU")
    assert caught.value.node == "product"
