"""Quantised models on CPU: computed in int8, and right to a quantum of the output's scale."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.precision import has_native_int8
from aioinfer.errors import AioInferError, BlobError
from aioinfer.runtime.blobs.reader import Blob
from aioinfer.runtime.blobs.writer import BlobWriter
from unit.backends.cpu.comparing import skip_without_int8
from unit.backends.cpu.quantized_models import (
    bert_layer,
    long_product,
    perceptron,
    quantized,
    residual_block,
)

needs_int8 = pytest.mark.usefixtures("int8")
KINDS: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[int, ...]]] = {
    "residual block": (residual_block, (2, 3, 16, 16)),
    "perceptron": (perceptron, (5, 33)),
    "bert layer": (bert_layer, (1, 12, 32)),
}


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


@pytest.fixture
def int8(core: Core) -> None:
    skip_without_int8(core)


def samples(shape: tuple[int, ...], count: int = 4) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(7)
    return [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def run(core: Core, path: Path, device: str, x: np.ndarray, **config: object) -> np.ndarray:
    with core.load_network(path, device, config) as network:
        (found,) = network.create_infer_request().infer_sync({"x": x}).values()
    return np.asarray(found)


def int8_nodes(core: Core, path: Path) -> list[str]:
    """What multiplies in int8, by operator."""
    with core.load_network(path, "CPU") as network:
        nodes = network.runtime_graph().nodes
        return sorted(node.op_type for node in nodes if node.op_type in ("Int8Conv", "Int8MatMul"))


def output_scale(path: Path) -> float:
    """The scale by which the model's last DequantizeLinear makes its output."""
    graph = onnx.load(path).graph
    last = next(node for node in graph.node if graph.output[0].name in node.output)
    scale = next(item for item in graph.initializer if item.name == last.input[1])
    return float(numpy_helper.to_array(scale).max())


def assert_a_quantum_off(found: np.ndarray, wanted: np.ndarray, scale: float) -> None:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    is_near = np.abs(found.astype(np.float64) - wanted) <= scale * 1.001
    assert is_near.mean() >= 0.999, np.abs(found - wanted).max() / scale


@needs_int8
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("activations", "per_channel", "is_symmetric"),
    [*itertools.product(("QUInt8", "QInt8"), (False, True), (False, True))],
)
def test_what_the_quantizer_writes(
    core: Core,
    tmp_path: Path,
    kind: str,
    activations: str,
    per_channel: bool,
    is_symmetric: bool,
) -> None:
    make, shape = KINDS[kind]
    path = quantized(
        make(),
        tmp_path,
        samples(shape),
        activations=activations,
        per_channel=per_channel,
        is_symmetric=is_symmetric,
    )
    products = [node.op_type for node in onnx.load(path).graph.node]
    wanted = {
        "Int8Conv": products.count("Conv"),
        "Int8MatMul": products.count("Gemm") + products.count("MatMul"),
    }
    if kind == "bert layer":
        wanted["Int8MatMul"] -= 2  # of two tensors, neither of them weights
    assert int8_nodes(core, path) == sorted(
        name for name, count in wanted.items() for _ in range(count)
    )
    for given in samples(shape, 3):
        expected = run(core, path, "REFERENCE", given["x"])
        assert_a_quantum_off(run(core, path, "CPU", given["x"]), expected, output_scale(path))


@needs_int8
@pytest.mark.parametrize("kind", KINDS)
def test_unsigned_weights_that_are_not_symmetric_are_computed_in_float32(
    core: Core, tmp_path: Path, kind: str
) -> None:
    make, shape = KINDS[kind]
    path = quantized(make(), tmp_path, samples(shape), weights="QUInt8")
    (given,) = samples(shape, 1)
    found, expected = (run(core, path, device, given["x"]) for device in ("CPU", "REFERENCE"))
    assert_a_quantum_off(found, expected, output_scale(path))


@needs_int8
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
def test_operators_on_stored_numbers_run_in_the_same_way(
    core: Core, tmp_path: Path, activations: str
) -> None:
    shape = (2, 3, 16, 16)
    path = quantized(
        residual_block(), tmp_path, samples(shape), activations=activations, style="QOperator"
    )
    model = onnx.load(path)
    kept = ("Conv", "QLinearConv", "MaxPool", "QuantizeLinear")
    found = [item.op_type for item in model.graph.node]
    assert found.count("QLinearConv") == 5
    last = next(index for index, name in enumerate(found) if name not in kept)
    del model.graph.node[last:]  # onnxruntime's own operators begin here
    stored = model.graph.node[-1].output[0]
    del model.graph.output[:]
    kind = TensorProto.UINT8 if activations == "QUInt8" else TensorProto.INT8
    model.graph.output.append(helper.make_tensor_value_info(stored, kind, None))
    onnx.save(model, path)
    assert int8_nodes(core, path) == ["Int8Conv"] * 3
    for given in samples(shape, 2):
        wide = [
            run(core, path, device, given["x"]).astype(np.int32) for device in ("CPU", "REFERENCE")
        ]
        assert_a_quantum_off(wide[0], wide[1], 1.0)


@needs_int8
def test_a_pool_reads_what_is_stored(core: Core, tmp_path: Path) -> None:
    path = quantized(residual_block(), tmp_path, samples((2, 3, 16, 16)))
    with core.load_network(path, "CPU") as network:
        pool = next(node for node in network.runtime_graph().nodes if node.op_type == "MaxPool")
        assert pool.inputs[0] is not None
        assert str(pool.inputs[0].type).startswith("uint8")


@needs_int8
@pytest.mark.parametrize(("inner", "weight", "is_int8"), [(70_000, 127, False), (70_000, 1, True)])
@pytest.mark.parametrize("activations", [np.uint8, np.int8])
def test_sums_that_int32_cannot_hold_are_made_in_float32(
    core: Core, tmp_path: Path, inner: int, weight: int, is_int8: bool, activations: type
) -> None:
    inner = inner if activations is np.uint8 else 2 * inner
    path = long_product(tmp_path / "long.onnx", inner, weight, activations)
    assert int8_nodes(core, path) == (["Int8MatMul"] if is_int8 else [])
    x = np.full((2, inner), -1.0 if activations is np.int8 else 1.0, np.float32)
    found, expected = (run(core, path, device, x) for device in ("CPU", "REFERENCE"))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.fixture
def onednn_int8(int8: None) -> None:
    if has_native_int8(open_engine().instruction_set):
        pytest.skip("this CPU multiplies 8 bits by native kernels, whose scales are no attributes")


@pytest.mark.usefixtures("onednn_int8")
@pytest.mark.parametrize(("mask", "count"), [(2, 1), (2, 4), (0, 4), (1, 4)])
def test_scales_beyond_those_of_a_blob_are_not_read(
    core: Core, tmp_path: Path, mask: int, count: int
) -> None:
    path = long_product(tmp_path / "long.onnx", 8, 1, np.uint8)  # of one scale
    with core.load_network(path, "CPU") as network:
        network.create_infer_request().infer_sync({"x": np.ones((2, 8), np.float32)})
        blob = Blob.open(network.export())
    writer = BlobWriter()
    for name in blob.names():
        content = blob.memory(name).tobytes()
        if b'"onednn"' in content:
            assert b"],0,1]" in content
            content = content.replace(b"],0,1]", b"],%d,%d]" % (mask, count))
            writer.add_json(name, json.loads(content))
        else:
            writer.add_bytes(name, content)
    with pytest.raises(BlobError):
        core.import_network(b"".join(writer.chunks()), "CPU")


def rooted(activations: type, stored: type) -> onnx.ModelProto:
    """A matmul of stored numbers, of which the root is stored: of half of them there is none."""
    constants = {
        **{"s": np.float32(0.05), "z": activations(100), "sw": np.float32(0.01)},
        **{"w": np.arange(-192, 192).reshape(16, 24).astype(np.int8), "zw": np.int8(0)},
        **{"sy": np.float32(0.02), "zy": stored(90)},
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["v"]),
        helper.make_node("MatMul", ["d", "v"], ["m"]),
        helper.make_node("Sqrt", ["m"], ["r"]),
        helper.make_node("Relu", ["r"], ["u"]),
        helper.make_node("QuantizeLinear", ["u", "sy", "zy"], ["y"]),
    ]
    kinds = {np.int8: TensorProto.INT8, np.uint8: TensorProto.UINT8}
    graph = helper.make_graph(
        nodes,
        "rooted",
        [helper.make_tensor_value_info("x", kinds[activations], (30, 16))],
        [helper.make_tensor_value_info("y", kinds[stored], None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@needs_int8
@pytest.mark.parametrize("stored", [np.uint8, np.int8])
@pytest.mark.parametrize("activations", [np.uint8, np.int8])
def test_what_has_no_root_is_stored_as_the_least(
    core: Core, activations: type, stored: type
) -> None:
    limits = np.iinfo(activations)
    x = np.random.default_rng(3).integers(limits.min, limits.max, (30, 16)).astype(activations)
    found, wanted = [], []
    for device, made in (("CPU", found), ("REFERENCE", wanted)):
        with core.load_network(rooted(activations, stored), device) as network:
            made.append(network.create_infer_request().infer_sync({"x": x})["y"].astype(int))
    is_least = wanted[0] == np.iinfo(stored).min
    assert 0.2 < is_least.mean() < 0.8
    np.testing.assert_array_equal(found[0] == np.iinfo(stored).min, is_least)
    assert np.abs(found[0] - wanted[0]).max() <= 1


@needs_int8
def test_without_the_pass_nothing_runs_in_int8(core: Core, tmp_path: Path) -> None:
    path = quantized(residual_block(), tmp_path, samples((2, 3, 16, 16)))
    (given,) = samples((2, 3, 16, 16), 1)
    config = {"CPU_DISABLED_PASSES": "int8 fusion"}
    with core.load_network(path, "CPU", config) as network:
        nodes = network.runtime_graph().nodes
        assert not any(node.op_type.startswith("Int8") for node in nodes)
        found = network.create_infer_request().infer_sync(given)["y"]
    assert_a_quantum_off(found, run(core, path, "REFERENCE", given["x"]), output_scale(path))


@needs_int8
@pytest.mark.parametrize("kind", ["perceptron", "bert layer"])
def test_open_lengths_are_replayed(core: Core, tmp_path: Path, kind: str) -> None:
    make = {"perceptron": perceptron, "bert layer": bert_layer}[kind]
    tail = {"perceptron": (33,), "bert layer": (32,)}[kind]
    front = {"perceptron": (), "bert layer": (1,)}[kind]
    path = quantized(make("rows"), tmp_path, samples((*front, 9, *tail)))
    scale = output_scale(path)
    with (
        core.load_network(path, "CPU") as network,
        core.load_network(path, "REFERENCE") as reference,
    ):
        request, wanted = network.create_infer_request(), reference.create_infer_request()
        for length in (9, 4, 17, 1, 30):
            (given,) = samples((*front, length, *tail), 1)
            assert_a_quantum_off(
                request.infer_sync(given)["y"].copy(), wanted.infer_sync(given)["y"], scale
            )
        nodes = network.runtime_graph().nodes
        assert any(node.op_type == "Int8MatMul" for node in nodes)


@needs_int8
def test_a_plan_is_exported_and_computes_the_same(core: Core, tmp_path: Path) -> None:
    path = quantized(residual_block(), tmp_path, samples((2, 3, 16, 16)))
    (given,) = samples((2, 3, 16, 16), 1)
    with core.load_network(path, "CPU", {"NUM_STREAMS": 1}) as network:
        wanted = network.create_infer_request().infer_sync(given)["y"].copy()
        blob = network.export()
    path.unlink()
    with core.import_network(blob, "CPU", {"NUM_STREAMS": 1}) as network:
        found = network.create_infer_request().infer_sync(given)["y"]
    np.testing.assert_array_equal(found, wanted)


@needs_int8
def test_parts_of_hetero_run_in_int8(core: Core, tmp_path: Path) -> None:
    path = quantized(residual_block(), tmp_path, samples((2, 3, 16, 16)))
    (given,) = samples((2, 3, 16, 16), 1)
    with core.load_network(path, "HETERO:CPU,REFERENCE") as network:
        found = network.create_infer_request().infer_sync(given)["y"]
        (part,) = network.networks
        nodes = part.runtime_graph().nodes
        assert sum(node.op_type.startswith("Int8") for node in nodes) == 6
    assert_a_quantum_off(found, run(core, path, "REFERENCE", given["x"]), output_scale(path))


def one_convolution(scale: float, scales: int = 4, zero_point: type = np.uint8) -> onnx.ModelProto:
    """A Conv of stored numbers; ``scale`` is that of the data, ``scales`` how many weights have."""
    constants = {
        "s": np.array(scale, np.float32),
        "z": np.array(3, zero_point),
        "w": np.random.default_rng(0).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.full(scales, 0.01, np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"], "data"),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["weights"], "weights", axis=0),
        helper.make_node("Conv", ["real", "weights"], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def stored_bias(
    bias: np.ndarray, *, is_gemm: bool = False, is_left: bool = False
) -> onnx.ModelProto:
    """A matmul of stored numbers whose sums are stored before a bias is added, and behind it.

    Then comes an activation; the scales have sums, and what is added, use their ranges.
    """
    random = np.random.default_rng(2)
    constants = {
        **{"xs": np.float32(0.02), "xz": np.uint8(120), "b": bias},
        **{"w": random.integers(-128, 128, (24, 16)).astype(np.int8)},
        **{"ws": np.linspace(0.002, 0.004, 16, dtype=np.float32), "wz": np.zeros(16, np.int8)},
        **{"ms": np.float32(0.05), "mz": np.uint8(130), "ys": np.float32(0.06)},
        **{"yz": np.uint8(122), "es": np.float32(1 / 128), "ez": np.uint8(128)},
    }
    node = helper.make_node
    nodes = [
        node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=1),
        node("Gemm" if is_gemm else "MatMul", ["xf", "wf"], ["m"]),
        node("QuantizeLinear", ["m", "ms", "mz"], ["mq"]),
        node("DequantizeLinear", ["mq", "ms", "mz"], ["md"]),
        node("Add", ["b", "md"] if is_left else ["md", "b"], ["a"]),
        node("QuantizeLinear", ["a", "ys", "yz"], ["aq"]),
        node("DequantizeLinear", ["aq", "ys", "yz"], ["ad"]),
        node("Erf", ["ad"], ["e"]),
        node("QuantizeLinear", ["e", "es", "ez"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "stored bias",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [7, 24] if is_gemm else [2, 7, 24])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def stored_results(core: Core, model: onnx.ModelProto) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Operators of CPU's plan, and what CPU and REFERENCE make of random numbers."""
    shape = [item.dim_value for item in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(3).integers(0, 256, shape).astype(np.uint8)
    found, operators = [], []
    for device in ("CPU", "REFERENCE"):
        with core.load_network(model, device) as network:
            found.append(np.asarray(network.create_infer_request().infer_sync({"x": x})["y"]))
            operators = operators or [node.op_type for node in network.runtime_graph().nodes]
    assert np.ptp(found[1].astype(int)) > 100
    return operators, found[0], found[1]


ROW = np.linspace(-3, 3, 16, dtype=np.float32)


@needs_int8
@pytest.mark.parametrize("is_gemm", [False, True])
@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("rank", [1, 2])
def test_a_bias_between_two_roundings_is_a_step_of_the_matmul(
    core: Core, is_gemm: bool, is_left: bool, rank: int
) -> None:
    """What is stored behind it is then looked up, and no float32 is left."""
    bias = ROW.reshape((1,) * (rank - 1) + (16,))
    operators, found, wanted = stored_results(
        core, stored_bias(bias, is_gemm=is_gemm, is_left=is_left)
    )
    apart = np.abs(found.astype(int) - wanted)
    assert np.mean(apart > 0) <= 0.01  # a quantum before Erf is up to eight behind it
    if has_native_int8(open_engine().instruction_set):
        pytest.skip("native kernels have no rows as steps")
    assert operators.count("Int8MatMul") == operators.count("Int8Table") == 1
    assert "Add" not in operators


@needs_int8
@pytest.mark.parametrize(
    "bias",
    [
        np.linspace(-1, 1, 7, dtype=np.float32).reshape(7, 1),
        np.linspace(-1, 1, 112, dtype=np.float32).reshape(7, 16),
        np.where(ROW[3] == ROW, np.float32(np.inf), ROW),
    ],
    ids=["a column", "a matrix", "infinity"],
)
def test_what_is_no_row_of_numbers_is_added_in_float32(core: Core, bias: np.ndarray) -> None:
    operators, found, wanted = stored_results(core, stored_bias(bias))
    apart = np.abs(found.astype(int) - wanted)
    assert np.mean(apart > 0) <= 0.01
    assert operators.count("Int8MatMul") == 1
    assert "Add" in operators or "Eltwise" in operators


@needs_int8
@pytest.mark.parametrize("scale", [0.0, -0.1, float("nan"), float("inf"), 1e-45, 3e38])
def test_odd_scales_are_left_to_float32(core: Core, scale: float) -> None:
    x = np.random.default_rng(1).integers(0, 256, (1, 3, 8, 8)).astype(np.uint8)
    model = one_convolution(scale)
    with core.load_network(model, "CPU") as network:
        found = network.create_infer_request().infer_sync({"x": x})["y"]
        assert not any(node.op_type == "Int8Conv" for node in network.runtime_graph().nodes)
    with core.load_network(model, "REFERENCE") as network:
        wanted = network.create_infer_request().infer_sync({"x": x})["y"]
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (one_convolution(0.1, scales=3), "weights"),
        (one_convolution(0.1, zero_point=np.int8), "data"),
    ],
    ids=["too few scales", "a zero point of another type"],
)
def test_numbers_that_do_not_fit_are_refused_by_the_name_of_the_node(
    core: Core, model: onnx.ModelProto, name: str
) -> None:
    with pytest.raises(AioInferError, match=name):
        core.load_network(model, "CPU")


_CHILD = """
import sys
import numpy as np
from aioinfer import Core
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.backends.cpu.precision import has_int8

with Core() as core, core.load_network(sys.argv[1], "CPU") as network:
    found = network.create_infer_request().infer_sync({"x": np.load(sys.argv[2])})["y"]
    np.save(sys.argv[3], found)
    nodes = network.runtime_graph().nodes
    print(sum(node.op_type.startswith("Int8") for node in nodes))
    print(has_int8(open_engine().instruction_set))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("instructions", ["AVX2", "AVX512_CORE"])
def test_sums_do_not_overflow_where_products_are_summed_in_16_bits(
    core: Core, tmp_path: Path, instructions: str
) -> None:
    path = quantized(residual_block(), tmp_path, samples((2, 3, 16, 16)))
    x = 3.0 * samples((2, 3, 16, 16), 1)[0]["x"]  # saturated data, next to the largest weights
    np.save(tmp_path / "x.npy", x)
    arguments = [path, tmp_path / "x.npy", tmp_path / "y.npy"]
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, *map(str, arguments)],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": instructions},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    count, is_fast = child.stdout.split()[-2:]
    assert (count, is_fast) in (("6", "True"), ("0", "False"))
    expected = run(core, path, "REFERENCE", x)
    assert_a_quantum_off(np.load(tmp_path / "y.npy"), expected, output_scale(path))
