"""What is computed from one stored tensor to another is looked up in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from unit.backends.cpu.comparing import INTEGERS, has_instructions, skip_without_int8
from unit.backends.cpu.native_calls import run_native

node = helper.make_node


@pytest.fixture(autouse=True)
def _needs_int8(core: Core) -> None:
    skip_without_int8(core)


def model(
    nodes: Sequence[Any],
    dtype: type = np.uint8,
    shape: Sequence[int | str] = (2, 3, 64),
    outputs: Sequence[str] = ("y",),
) -> bytes:
    """Nodes between x and y, which are stored; s1 and s2 are scales, z a zero point."""
    constants = {
        "s1": np.float32(0.05),
        "s2": np.float32(0.021),
        "z": dtype(100),
        "one": np.float32(1),
        "half": np.full((1, 1, 1), 0.5, np.float32),
        "root": np.array([1.4142135], np.float32),
        "row": np.linspace(-1, 1, 64, dtype=np.float32),
    }
    graph = helper.make_graph(
        list(nodes),
        "stored",
        [helper.make_tensor_value_info("x", INTEGERS[dtype], shape)],
        [
            helper.make_tensor_value_info(
                name, INTEGERS[dtype] if name == "y" else TensorProto.FLOAT, shape
            )
            for name in outputs
        ],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def dequantized(source: str, made: str, scale: str = "s1") -> Any:
    return node("DequantizeLinear", [source, scale, "z"], [made])


def quantized(source: str, made: str, scale: str = "s2") -> Any:
    return node("QuantizeLinear", [source, scale, "z"], [made])


GELU = [
    dequantized("x", "a"),
    node("Div", ["a", "root"], ["b"]),
    node("Erf", ["b"], ["c"]),
    quantized("c", "d"),
    dequantized("d", "e", "s2"),
    node("Add", ["e", "one"], ["f"]),
    quantized("f", "g"),
    dequantized("g", "h", "s2"),
    node("Mul", ["a", "h"], ["i"]),
    node("Mul", ["half", "i"], ["j"]),
    quantized("j", "y"),
]
SIGMOID = [dequantized("x", "a"), node("Sigmoid", ["a"], ["b"]), quantized("b", "y")]
RESTORED = [dequantized("x", "a"), quantized("a", "y")]


def all_bytes(dtype: type, shape: tuple[int, ...] = (2, 3, 64)) -> np.ndarray:
    return np.arange(np.prod(shape)).astype(np.uint8).view(dtype).reshape(shape)


def operators(core: Core, content: bytes) -> list[str]:
    with core.load_network(content, "CPU") as network:
        return [item.op_type for item in network.runtime_graph().nodes]


def results(core: Core, content: bytes, x: np.ndarray, device: str) -> dict[str, np.ndarray]:
    with core.load_network(content, device) as network:
        return dict(network.create_infer_request().infer_sync({"x": x}))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("nodes", [GELU, SIGMOID, RESTORED], ids=["gelu", "sigmoid", "restored"])
def test_a_table_holds_what_the_nodes_compute(core: Core, dtype: type, nodes: list[Any]) -> None:
    content, x = model(nodes, dtype), all_bytes(dtype)
    assert "Int8Table" in operators(core, content)
    found, wanted = (results(core, content, x, device)["y"] for device in ("CPU", "REFERENCE"))
    assert found.dtype == dtype
    off = np.abs(found.astype(int) - wanted.astype(int))
    assert off.max() <= 1
    assert np.count_nonzero(off) <= 0.01 * off.size


def test_large_tensors_are_looked_up_in_blocks(core: Core) -> None:
    shape = (3, 5, 64 * 100)
    content, x = model(SIGMOID, shape=shape), all_bytes(np.uint8, shape)
    assert results(core, content, x, "CPU")["y"].tolist() == (
        results(core, content, x, "REFERENCE")["y"].tolist()
    )


@pytest.mark.parametrize("shape", [(1,), (0, 4), (2, 0, 64)], ids=str)
def test_tensors_of_few_elements_and_of_none_are_looked_up(
    core: Core, shape: tuple[int, ...]
) -> None:
    content, x = model(SIGMOID, shape=shape), all_bytes(np.uint8, shape)
    assert results(core, content, x, "CPU")["y"].shape == shape


def test_open_lengths_are_looked_up(core: Core) -> None:
    content = model(GELU, shape=("batch", "rows", 64))
    with (
        core.load_network(content, "CPU") as network,
        core.load_network(content, "REFERENCE") as by,
    ):
        for shape in ((2, 3, 64), (1, 7, 64), (4, 2, 64), (1, 1, 64)):
            x = all_bytes(np.uint8, shape)
            found = network.create_infer_request().infer_sync({"x": x})["y"]
            wanted = by.create_infer_request().infer_sync({"x": x})["y"]
            assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


@pytest.mark.parametrize(
    "nodes",
    [
        [dequantized("x", "a"), node("Mul", ["a", "row"], ["b"]), quantized("b", "y")],
        [dequantized("x", "a"), node("Softmax", ["a"], ["b"]), quantized("b", "y")],
        [dequantized("x", "a"), quantized("a", "y", "s1")],
        [
            dequantized("x", "a"),
            node("Softmax", ["a"], ["b"]),
            quantized("b", "c"),
            dequantized("c", "d", "s2"),
            node("Sigmoid", ["d"], ["e"]),
            quantized("e", "y"),
        ],
    ],
    ids=["a row", "over others", "stored as it was", "rounded in between"],
)
def test_what_is_no_function_of_what_is_stored_is_computed(core: Core, nodes: list[Any]) -> None:
    content, x = model(nodes), all_bytes(np.uint8)
    assert "Int8Table" not in operators(core, content)
    found, wanted = (results(core, content, x, device)["y"] for device in ("CPU", "REFERENCE"))
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_what_others_need_is_computed_where_it_was(core: Core) -> None:
    content, x = model(SIGMOID, outputs=("y", "b")), all_bytes(np.uint8)
    assert "Int8Table" not in operators(core, content)
    found, wanted = (results(core, content, x, device) for device in ("CPU", "REFERENCE"))
    np.testing.assert_allclose(found["b"], wanted["b"], rtol=1e-5)
    np.testing.assert_array_equal(found["y"], wanted["y"])


def test_a_table_goes_on_where_another_ends(core: Core) -> None:
    """What is stored in between is an output, too."""
    nodes = [*SIGMOID[:2], quantized("b", "y"), dequantized("y", "c", "s2")]
    nodes += [node("Exp", ["c"], ["d"]), quantized("d", "e"), dequantized("e", "f", "s2")]
    content = model([*nodes, node("Softmax", ["f"], ["g"])], outputs=("y", "g"))
    x = all_bytes(np.uint8)
    assert operators(core, content).count("Int8Table") == 2
    found, wanted = (results(core, content, x, device) for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(found["y"], wanted["y"])
    np.testing.assert_allclose(found["g"], wanted["g"], rtol=1e-4)


HAS_VBMI = has_instructions("avx2", "fma", "avx512f", "avx512bw", "avx512vbmi")


@pytest.mark.parametrize(
    "_code",
    [
        pytest.param(
            "vbmi",
            marks=pytest.mark.skipif(not HAS_VBMI, reason="this CPU has no AVX-512 with VBMI"),
        ),
        pytest.param(
            "plain",
            marks=pytest.mark.skipif(HAS_VBMI, reason="this CPU looks up by AVX-512 with VBMI"),
        ),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_byte_is_looked_up_at_every_place_of_a_vector(threads: int, _code: str) -> None:
    """Nothing before and behind the result is written, wherever it begins and ends."""
    random = np.random.default_rng(8)
    table = random.permutation(256).astype(np.uint8)
    every = np.concatenate([random.permutation(256) for _ in range(80)]).astype(np.uint8)
    counts = [*range(1, 200), 255, 256, 257, 8191, 8192, 8193, 8192 + 63, 20000]
    for index, count in enumerate(counts):
        begin = index % 67
        bytes_ = every[begin : begin + count].copy()
        target = np.full(count + 160, 77, np.uint8)
        run_native("look_up", [bytes_, table, target[begin:]], [count], threads)
        np.testing.assert_array_equal(target[begin : begin + count], table[bytes_])
        assert (target[:begin] == 77).all()
        assert (target[begin + count :] == 77).all()
