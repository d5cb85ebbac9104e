"""What explain() says of numbers: nodes in int8, those that nearly are, 16 bits, packed weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from aioinfer import Core
from aioinfer.backends.cpu.plans.node_facts import NodeFacts
from aioinfer.backends.cpu.plans.number_types import NumberRules, number_groups
from aioinfer.runtime.graph import DType, Graph, Node, TensorType, Value
from unit.backends.cpu.comparing import model_of, skip_without_int8

CHANCE = np.random.default_rng(0)
X = CHANCE.standard_normal((1, 6, 6, 6)).astype(np.float32)
STORED = CHANCE.integers(-100, 100, (6, 6, 3, 3), np.int8)
FREE = CHANCE.integers(0, 255, (6, 6), np.uint8)
HALF = "in float32 between numbers of 8 bits"


def quantised(*, rows: int | str = 1) -> bytes:
    """Conv, Transpose, MatMul with weights of uint8, Softmax and MatMul, 8 bits between them."""
    node = helper.make_node

    def stored(name: str) -> list[Any]:
        return [
            node("QuantizeLinear", [name, "s", "z"], [f"{name}_q"], f"{name}_store"),
            node("DequantizeLinear", [f"{name}_q", "s", "z"], [f"{name}_d"], f"{name}_read"),
        ]

    nodes = [
        *stored("x"),
        node("DequantizeLinear", ["w", "s"], ["w_d"], "weights"),
        node("Conv", ["x_d", "w_d"], ["c"], "conv", pads=[1] * 4),
        *stored("c"),
        node("Transpose", ["c_d"], ["t"], "turn", perm=[0, 2, 1, 3]),
        *stored("t"),
        node("DequantizeLinear", ["u", "s", "uz"], ["u_d"], "free"),
        node("MatMul", ["t_d", "u_d"], ["m"], "product"),
        *stored("m"),
        node("Softmax", ["m_d"], ["p"], "softmax"),
        *stored("p"),
        node("MatMul", ["m_d", "p_d"], ["r"], "scores"),
        *stored("r"),
        node("Identity", ["r_d"], ["y"], "last"),
    ]
    constants = {
        "w": STORED,
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "u": FREE,
        "uz": np.uint8(7),
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 6, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return bytes(made.SerializeToString())


TOLD = [
    "in int8: 1 node: conv",
    "moved or looked up in 8 bits: 2 nodes: conv_pad, turn",
    f"{HALF} (for want of an int8 kernel): 1 node: softmax (Softmax)",
    f"{HALF} (two tensors multiplied): 1 node: scores",
    f"{HALF} (weights that are not int8 around 0, nor uint8 around 128): 1 node: product",
]


def told(text: str) -> list[str]:
    """Return what explain() says below its first line."""
    return [line.strip() for line in text.splitlines() if line.startswith("  ")]


def test_nodes_in_int8_are_told_and_why_others_are_not(core: Core) -> None:
    skip_without_int8(core)
    with core.load_network(quantised(), "CPU") as network:
        assert told(network.explain()) == TOLD


@pytest.mark.parametrize("exportable", [False, True])
def test_an_imported_network_tells_the_same(core: Core, exportable: bool) -> None:
    skip_without_int8(core)
    with core.load_network(quantised(), "CPU", {"EXPORTABLE": exportable}) as network:
        blob = network.export()
    with core.import_network(blob, "CPU") as imported:
        assert told(imported.explain()) == TOLD


@pytest.mark.parametrize("device", ["AUTO", "HETERO", "MULTI"])
def test_devices_around_it_tell_it_too(core: Core, device: str) -> None:
    skip_without_int8(core)
    with core.load_network(quantised(), f"{device}:CPU,REFERENCE") as network:
        lines = told(network.explain())
    assert [line for line in TOLD if line not in lines] == []


def test_a_batched_network_tells_its_rows_in_the_first_line(core: Core) -> None:
    skip_without_int8(core)
    with core.load_network(quantised(rows="rows"), "BATCH:CPU") as network:
        network.create_infer_request().infer_sync({"x": X})
        assert "share a run" in network.explain().splitlines()[0]
        assert told(network.explain()) == TOLD


def test_the_page_shows_what_is_told() -> None:
    page = Path(__file__).parents[4] / "docs" / "cpu.md"
    assert "\n  ".join(["", *TOLD]) in page.read_text(encoding="utf-8")


def test_open_shapes_are_told_once_one_has_been_compiled(core: Core) -> None:
    skip_without_int8(core)
    with core.load_network(quantised(rows="rows"), "CPU") as network:
        (line,) = told(network.explain())
        assert line.startswith("no shapes have been compiled yet")
        network.create_infer_request().infer_sync({"x": X})
        assert told(network.explain()) == TOLD


def test_without_the_pass_no_node_is_said_to_lack_a_kernel(core: Core) -> None:
    config = {"CPU_DISABLED_PASSES": "int8 fusion"}
    with core.load_network(quantised(), "CPU", config) as network:
        assert not any(HALF in line or "in int8" in line for line in told(network.explain()))
        assert "rounded to what 8 bits hold" in network.explain()


def test_a_float_model_tells_nothing(core: Core) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    with core.load_network(model_of(nodes, {"x": X}), "CPU") as network:
        assert told(network.explain()) == []


def test_packed_weights_are_told_before_shapes_are_known(core: Core) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], "read"),
        helper.make_node("MatMul", ["x", "d"], ["y"], "product"),
    ]
    x = CHANCE.standard_normal((2, 6)).astype(np.float32)
    constants = {"w": STORED.reshape(-1, 6)[:8].T, "s": np.float32(0.1)}
    model = model_of(nodes, {"x": x}, constants=constants, dynamic=True)
    with core.load_network(model, "CPU") as network:
        assert told(network.explain()) == ["with packed weights of 8 bits: 1 node: product"]
        network.create_infer_request().infer_sync({"x": x})
        assert told(network.explain()) == [
            "with packed weights of 8 bits, data in float32: 1 node: product"
        ]


def test_many_names_are_cut_short(core: Core) -> None:
    skip_without_int8(core)
    names = [f"turn{index}" for index in range(11)]
    node = helper.make_node
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["turned"], "store")]
    for name in names:
        nodes.append(node("Relu", [nodes[-1].output[0]], [name], name))
    nodes.append(node("DequantizeLinear", [names[-1], "s", "z"], ["y"], "read"))
    constants = {"s": np.float32(1), "z": np.int8(0)}
    with core.load_network(model_of(nodes, {"x": X}, constants=constants), "CPU") as network:
        (line,) = told(network.explain())
    assert line.startswith("moved or looked up in 8 bits: 11 nodes: turn0, turn1")
    assert line.endswith("turn7, 3 more")


def test_what_is_held_in_16_bits_is_told_apart_from_what_is_stored_so() -> None:
    graph = Graph("g")
    x = Value("x", TensorType(DType.FLOAT32, (2, 2)))
    graph.inputs.append(x)
    facts = {}
    for name, kind in (("product", "bfloat16"), ("rows", "float16"), ("sum", "float32")):
        made = Value(name, TensorType(DType.FLOAT32, (2, 2)))
        graph.append(Node("Relu", (x,), (made,), name=name))
        facts[name] = NodeFacts("native:x", "ab", kind)
    assert number_groups(graph, facts, NumberRules(DType.BFLOAT16, has_int8=True)) == {
        "in bfloat16": ["product"],
        "moved in float16, as it is stored": ["rows"],
    }
