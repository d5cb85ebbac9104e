"""Products with weights of 4 and 8 bits, which stay packed; REFERENCE unpacks them by numpy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.cpu.kernels.matrices.packed_matmul import MOST_ROWS
from aioinfer.errors import AioInferError, ModelError

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with aioinfer.Core() as made:
        yield made


def model_of(
    nodes: list[onnx.NodeProto],
    constants: dict[str, Any],
    shapes: tuple[list[Any], list[Any]],
    kind: int = TensorProto.FLOAT,
) -> bytes:
    stored = [
        array if isinstance(array, TensorProto) else numpy_helper.from_array(array, name)
        for name, array in constants.items()
    ]
    given, made = shapes
    graph = helper.make_graph(
        nodes,
        "packed",
        [helper.make_tensor_value_info("x", kind, given)],
        [helper.make_tensor_value_info("y", kind, made)],
        stored,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def bits_model(
    inner: int,
    columns: int,
    *,
    bits: int,
    length: int,
    has_zeros: bool = False,
    has_bias: bool = False,
    rows: Any = "rows",
    kind: Any = np.float32,
    changed: dict[str, Any] | None = None,
    level: int = 0,
) -> bytes:
    """Write a MatMulNBits; ``changed`` replaces constants, ``level`` is how exact it has to be."""
    random = np.random.default_rng(inner * columns + bits + length)
    blocks = -(-inner // length)
    constants: dict[str, Any] = {
        "w": random.integers(0, 256, (columns, blocks, length * bits // 8)).astype(np.uint8),
        "s": random.uniform(0.01, 0.02, columns * blocks).astype(kind),
    }
    operands = ["x", "w", "s", "", "", ""]
    if has_zeros:
        count = columns * -(-blocks * bits // 8)
        constants["z"] = random.integers(0, 256, count).astype(np.uint8)
        operands[3] = "z"
    if has_bias:
        constants["b"] = random.normal(size=columns).astype(kind)
        operands[5] = "b"
    constants.update(changed or {})
    while not operands[-1]:
        operands.pop()
    node = helper.make_node(
        "MatMulNBits",
        operands,
        ["y"],
        name="node",
        domain="com.microsoft",
        K=inner,
        N=columns,
        bits=bits,
        block_size=length,
        accuracy_level=level,
    )
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return model_of([node], constants, ([rows, inner], [rows, columns]), element)


def data(rows: int, inner: int, kind: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(rows, inner)).astype(kind)


def answer(core: aioinfer.Core, model: bytes, device: str, x: np.ndarray) -> np.ndarray:
    with core.load_network(model, device) as network:
        return np.asarray(network.create_infer_request().infer_sync({"x": x})["y"])


def kernels(core: aioinfer.Core, model: bytes, x: np.ndarray) -> list[str]:
    with core.load_network(model, "CPU") as network:
        network.create_infer_request().infer_sync({"x": x})
        nodes = network.runtime_graph().nodes
        return [str(node.metadata["implementation"]) for node in nodes if node.domain]


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    """Compare up to the rounding of float32 sums, of which all are as large as the largest."""
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=4e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("rows", [1, 7, MOST_ROWS + 1])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("length", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("bits", [4, 8])
def test_each_packing_is_the_product_of_the_unpacked_weights(
    core: aioinfer.Core, bits: int, length: int, has_zeros: bool, rows: int
) -> None:
    for inner, columns in ((384, 65), (77, 3), (length + 1, 17)):
        model = bits_model(
            inner, columns, bits=bits, length=length, has_zeros=has_zeros, has_bias=rows % 2 == 1
        )
        x = data(rows, inner)
        close(answer(core, model, "CPU", x), answer(core, model, "REFERENCE", x))


@pytest.mark.parametrize(("rows", "name"), [(1, "packed_matmul"), (64, "unpack_weights")])
def test_the_graph_says_which_kernels_read_the_weights(
    core: aioinfer.Core, rows: int, name: str
) -> None:
    (found,) = kernels(core, bits_model(256, 48, bits=4, length=32), data(rows, 256))
    assert f"native:{name}" in found


def test_onnxruntime_comes_to_the_same(core: aioinfer.Core) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = bits_model(256, 48, bits=4, length=32, has_zeros=True, rows=2)
    x = data(2, 256)
    wanted = onnxruntime.InferenceSession(model).run(None, {"x": x})[0]
    # It may store the data in 8 bits for it.
    np.testing.assert_allclose(
        answer(core, model, "CPU", x), wanted, atol=0.02 * np.abs(wanted).max()
    )


@pytest.mark.parametrize("rows", [1, MOST_ROWS + 1])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("number", [0, 255])
def test_the_ends_of_the_range_do_not_overflow(
    core: aioinfer.Core, bits: int, number: int, rows: int
) -> None:
    inner, columns = 4096, 8
    weights = np.full((columns, inner // 32, 4 * bits), number, np.uint8)
    model = bits_model(inner, columns, bits=bits, length=32, changed={"w": weights})
    x = np.full((rows, inner), 1e30, np.float32)
    close(answer(core, model, "CPU", x), answer(core, model, "REFERENCE", x))


@pytest.mark.parametrize("rows", [1, MOST_ROWS + 1])
@pytest.mark.parametrize("bits", [4, 8])
def test_infinite_data_meet_numbers_and_zero_points_at_once(
    core: aioinfer.Core, bits: int, rows: int
) -> None:
    model = bits_model(64, 8, bits=bits, length=32, has_zeros=True)
    x = np.ones((rows, 64), np.float32)
    x[:, 3] = np.inf
    found, wanted = (answer(core, model, device, x) for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(found, wanted)
    assert np.isinf(found).any()


def test_zero_points_beside_the_numbers_cost_no_digits(core: aioinfer.Core) -> None:
    inner, columns, chance = 4096, 8, np.random.default_rng(4)
    weights = chance.integers(0, 3, (columns, inner // 32, 32)).astype(np.uint8)
    zeros = np.full(columns * inner // 32, 1, np.uint8)
    model = bits_model(
        inner, columns, bits=8, length=32, has_zeros=True, changed={"w": weights, "z": zeros}
    )
    x = chance.normal(5, 1, (1, inner)).astype(np.float32)
    close(answer(core, model, "CPU", x), answer(core, model, "REFERENCE", x))


def test_numbers_near_the_smallest_keep_their_digits(core: aioinfer.Core) -> None:
    model = bits_model(128, 16, bits=4, length=32)
    x = data(1, 128) * np.float32(1e-33)
    found = answer(core, model, "CPU", x).astype(np.float64) * 1e33
    close(found, answer(core, model, "REFERENCE", x * np.float32(1e33)))


def test_a_half_model_is_computed_in_float32(core: aioinfer.Core) -> None:
    model = bits_model(256, 48, bits=4, length=32, has_zeros=True, kind=np.float16)
    x = data(3, 256, np.float16)
    found, wanted = answer(core, model, "CPU", x), answer(core, model, "REFERENCE", x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, wanted, atol=1e-2 * np.abs(wanted).max())


_TYPES = {
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
}


def dequantized_model(
    kind: int, inner: int, columns: int, length: int, *, op: str = "MatMul", has_zeros: bool
) -> bytes:
    """Write a DequantizeLinear in front of a product; ``length`` 0 has a scale for each column."""
    random = np.random.default_rng(kind + inner)
    low, high = _TYPES[kind]
    is_turned = op == "Gemm"
    blocks = -(-inner // length) if length else 1
    weights = random.integers(low, high + 1, (inner, columns))
    scales = random.uniform(0.01, 0.02, (blocks, columns)).astype(np.float32)
    zeros = random.integers(low, high + 1, (blocks, columns))
    if is_turned:
        weights, scales, zeros = weights.T, scales.T, zeros.T
    if not length:
        scales, zeros = scales.reshape(-1), zeros.reshape(-1)
    constants: dict[str, Any] = {
        "w": helper.make_tensor("w", kind, weights.shape, weights.reshape(-1).tolist()),
        "s": scales,
    }
    operands = ["w", "s"]
    if has_zeros:
        constants["z"] = helper.make_tensor("z", kind, zeros.shape, zeros.reshape(-1).tolist())
        operands.append("z")
    axis = (1 if is_turned else 0) if length else (0 if is_turned else 1)
    attributes = {"axis": axis, **({"block_size": length} if length else {})}
    product = ["x", "real"]
    if is_turned:
        constants["b"] = random.normal(size=columns).astype(np.float32)
        product.append("b")
    nodes = [
        helper.make_node("DequantizeLinear", operands, ["real"], name="unpack", **attributes),
        helper.make_node(
            op, product, ["y"], name="product", **({"transB": 1} if is_turned else {})
        ),
    ]
    return model_of(nodes, constants, (["rows", inner], ["rows", columns]))


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(("inner", "length"), [(128, 16), (128, 32), (256, 64), (129, 0), (64, 0)])
@pytest.mark.parametrize("kind", _TYPES)
def test_a_dequantisation_in_front_of_a_product_stays_packed(
    core: aioinfer.Core, kind: int, inner: int, length: int, has_zeros: bool, op: str
) -> None:
    model = dequantized_model(kind, inner, 19, length, op=op, has_zeros=has_zeros)
    x = data(2, inner)
    assert "native:packed_matmul" in kernels(core, model, x)[0]
    close(answer(core, model, "CPU", x), answer(core, model, "REFERENCE", x))


def test_weights_that_two_nodes_use_are_unpacked_once(core: aioinfer.Core) -> None:
    model = onnx.load_from_string(dequantized_model(TensorProto.INT8, 64, 64, 0, has_zeros=False))
    first = model.graph.node[1]
    first.output[0] = "once"
    model.graph.node.append(helper.make_node("MatMul", ["once", "real"], ["y"], name="again"))
    written = model.SerializeToString()
    x = data(2, 64)
    with core.load_network(written, "CPU") as network:
        assert not any(node.op_type == "PackedMatMul" for node in network.runtime_graph().nodes)
    close(answer(core, written, "CPU", x), answer(core, written, "REFERENCE", x))


@pytest.mark.parametrize(
    "changed",
    [
        {"w": np.zeros((24, 3, 16), np.uint8)},
        {"s": np.ones(24 * 3, np.float32)},
        {"z": np.zeros(24, np.uint8)},
        {"w": np.zeros((24, 4, 15), np.uint8)},
    ],
    ids=["weights", "scales", "zero points", "bytes of a block"],
)
def test_constants_of_other_lengths_are_refused_with_the_nodes_name(
    core: aioinfer.Core, changed: dict[str, Any]
) -> None:
    model = bits_model(128, 24, bits=4, length=32, has_zeros=True, changed=changed)
    with pytest.raises(AioInferError, match="'node'"):
        core.load_network(model, "CPU")


def test_data_of_another_length_are_refused_with_the_nodes_name(core: aioinfer.Core) -> None:
    model = onnx.load_from_string(bits_model(128, 24, bits=4, length=32, rows=1))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 96
    with pytest.raises(ModelError, match="'node'"):
        core.load_network(model.SerializeToString(), "CPU")


def test_weights_stay_as_small_as_in_the_file(core: aioinfer.Core) -> None:
    model = bits_model(512, 512, bits=4, length=32, rows=1)
    with core.load_network(model, "CPU") as network:
        network.create_infer_request().infer_sync({"x": data(1, 512)})
        assert network.get_metric("PACKED_WEIGHTS_BYTES") == 512 * 512 // 2 + 4 * 512 * 512 // 32
        assert network.get_metric("ARENA_BYTES") < 1 << 14
        (node,) = network.runtime_graph().nodes
        weights = node.inputs[1]
        assert weights is not None
        assert weights.type is not None
        assert "uint8" in str(weights.type)


@pytest.mark.parametrize("rows", [1, 2 * MOST_ROWS, "rows"])
def test_an_exported_network_computes_the_same(
    core: aioinfer.Core, tmp_path: Path, rows: Any
) -> None:
    model = bits_model(256, 48, bits=4, length=32, has_zeros=True, has_bias=True, rows=rows)
    x = data(rows if isinstance(rows, int) else 3, 256)
    path = tmp_path / "packed.blob"
    with core.load_network(model, "CPU", {"EXPORTABLE": True}) as network:
        wanted = network.create_infer_request().infer_sync({"x": x})["y"]
        network.export(path)
    with core.import_network(path) as network:
        found = network.create_infer_request().infer_sync({"x": x})["y"]
    np.testing.assert_array_equal(found, wanted)


def test_lengths_are_replayed_and_change_kernels(core: aioinfer.Core) -> None:
    model = bits_model(256, 48, bits=4, length=32)
    with (
        core.load_network(model, "CPU") as network,
        core.load_network(model, "REFERENCE") as reference,
    ):
        request, other = network.create_infer_request(), reference.create_infer_request()
        for rows in (1, 2, 3, 30, 31, 5, 32, 0):
            x = data(rows, 256)
            wanted = other.infer_sync({"x": x})["y"]
            found = request.infer_sync({"x": x})["y"]
            assert found.shape == wanted.shape
            if rows:
                close(found, wanted)


def rounded(x: np.ndarray) -> np.ndarray:
    """Round data as the kernel does: each 32 of a row to 8 bits, by the largest of them."""
    blocks = x.astype(np.float64).reshape(len(x), -1, 32)
    scales = np.abs(blocks).max(axis=-1, keepdims=True) / 127.0
    steps = np.divide(blocks, scales, out=np.zeros_like(blocks), where=scales > 0)
    return np.asarray((np.rint(steps) * scales).reshape(x.shape), np.float32)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(
    ("inner", "length"),
    [
        *[(64, 32), (64, 64), (320, 32), (576, 64), (768, 192), (1024, 128), (1024, 256)],
        *[(1536, 512), (2304, 256), (3072, 1024)],
    ],
)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 3, MOST_ROWS])
def test_data_are_rounded_to_8_bits_where_the_model_allows_it(
    core: aioinfer.Core, inner: int, length: int, has_zeros: bool, rows: int, bits: int
) -> None:
    shape = {"bits": bits, "length": length, "has_zeros": has_zeros, "has_bias": True, "rows": rows}
    x = data(rows, inner)
    x[:, 32:40] = 0.0
    model = bits_model(inner, 45, level=4, **shape)
    assert kernels(core, model, x) == ["native:quantize_rows+native:packed_matmul_int8"]
    exact = bits_model(inner, 45, **shape)
    close(answer(core, model, "CPU", x), answer(core, exact, "REFERENCE", rounded(x)))


def test_rounded_data_are_as_near_as_those_of_onnxruntime(core: aioinfer.Core) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x = data(1, 1024)
    model = bits_model(1024, 256, bits=4, length=32, has_zeros=True, rows=1, level=4)
    exact = answer(core, model, "REFERENCE", x)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    peer = np.abs(session.run(None, {"x": x})[0] - exact).max()
    ours = np.abs(answer(core, model, "CPU", x) - exact).max()
    assert ours <= max(2 * peer, 0.02 * np.abs(exact).max())


@pytest.mark.parametrize(
    ("inner", "length", "bits", "level"),
    [
        (96, 32, 4, 4),
        (128, 16, 4, 4),
        (128, 16, 8, 4),
        (128, 32, 8, 1),
        (128, 32, 4, 1),
        (100, 128, 4, 4),
    ],
)
def test_data_stay_in_float32_otherwise(
    core: aioinfer.Core, inner: int, length: int, bits: int, level: int
) -> None:
    model = bits_model(inner, 24, bits=bits, length=length, rows=2, level=level)
    x = data(2, inner)
    assert kernels(core, model, x) == ["native:order_rows+native:packed_matmul"]
    close(answer(core, model, "CPU", x), answer(core, model, "REFERENCE", x))


def test_data_of_zeros_and_without_numbers_are_rounded_to_what_they_are(
    core: aioinfer.Core,
) -> None:
    model = bits_model(128, 24, bits=4, length=32, has_bias=True, rows=3, level=4)
    x = np.zeros((3, 128), np.float32)
    x[1, 5] = np.nan
    found = answer(core, model, "CPU", x)
    np.testing.assert_array_equal(found[0], found[2])
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()


def test_threads_share_the_columns_of_rounded_data(core: aioinfer.Core) -> None:
    model = bits_model(1024, 301, bits=4, length=32, rows=2, level=4)
    x = data(2, 1024)
    one, two = (
        core.load_network(model, "CPU", {"INFERENCE_NUM_THREADS": count})
        .create_infer_request()
        .infer_sync({"x": x})["y"]
        for count in (1, 2)
    )
    np.testing.assert_array_equal(one, two)
