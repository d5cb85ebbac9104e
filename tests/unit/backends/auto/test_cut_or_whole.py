"""Whether what CPU leaves to numpy is worth another device: a pure decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.auto.cut_or_whole import CutChoice, Prices, weigh
from aioinfer.runtime.costs import NodeCost, node_cost, numpy_s, supposed_shapes
from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader import read_model
from aioinfer.runtime.passes import Support, SupportMap
from onnx_text import parse_proto
from presence import skip_if_missing
from unit.backends.hetero.small_graphs import graph

BY_NUMPY = Support(True, "", "numpy")
YES = Support(True)


class DividingCore:
    """Cuts a chain of nodes as HETERO would, by AFFINITY alone; notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    def divide_network(self, model: Model, device: str, config: Mapping[str, Any]) -> Any:
        self.asked.append(config)
        given = config.get("AFFINITY", {})
        pieces: list[tuple[str, list[Any]]] = []
        for node in model.graph.nodes:
            wanted = given.get(node.name, "CPU")
            if not pieces or pieces[-1][0] != wanted:
                pieces.append((wanted, []))
            pieces[-1][1].append(SimpleNamespace(original_nodes=node.fused_from))
        subgraphs = [SimpleNamespace(device=name, nodes=nodes) for name, nodes in pieces]
        cuts = [SimpleNamespace(bytes=1 << 20)] * (len(pieces) - 1)
        return SimpleNamespace(partition=SimpleNamespace(subgraphs=subgraphs, cuts=cuts))


def chain(ops: Sequence[str], shape: Sequence[int | str] = (1, 1 << 20)) -> Model:
    lines = [
        f"n{place}@0 = {op}({'p' if not place else f'n{place - 1}'})"
        for place, op in enumerate(ops)
    ]
    return read_model(graph("\n".join(lines), f"n{len(ops) - 1}", shape=tuple(shape)))


def weighed(
    model: Model, support: SupportMap, core: DividingCore, takes: bool = True
) -> CutChoice | None:
    return weigh(
        core,  # type: ignore[arg-type]
        model,
        "CPU",
        {"CPU": support},
        lambda: ["ONNXRUNTIME"],
        lambda _: takes,
        lambda device, parts: {"of": device, "parts": tuple(parts)},
    )


def answers(model: Model, by_numpy: str) -> SupportMap:
    return {node.name: BY_NUMPY if node.op_type == by_numpy else YES for node in model.graph.nodes}


def test_a_model_without_parts_by_numpy_is_not_weighed() -> None:
    model, core = chain(["Relu", "Neg"]), DividingCore()
    assert weighed(model, answers(model, "Abs"), core) is None
    assert not core.asked


def test_a_model_that_is_mostly_numpy_goes_whole_to_who_has_code_for_it() -> None:
    model, core = chain(["Trilu", "Relu"]), DividingCore()
    choice = weighed(model, answers(model, "Trilu"), core)
    assert choice is not None
    assert choice.is_taken
    assert not choice.is_cut
    assert (choice.device, choice.config) == ("ONNXRUNTIME", {"of": "ONNXRUNTIME", "parts": ()})
    assert "ONNXRUNTIME is expected to take" in choice.reason
    assert "which has parts by numpy" in choice.reason


def product(count: int) -> Model:
    """Two large matmuls with triangles between them."""
    depth = 1024
    weights = numpy_helper.from_array(np.zeros((depth, depth), np.float32), "w")
    names = ["x", *(f"t{place}" for place in range(count)), "b"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t0"], name="first"),
        *(
            helper.make_node("Trilu", [names[place]], [names[place + 1]], name=names[place + 1])
            for place in range(1, count + 1)
        ),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="last"),
    ]
    proto = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [depth, depth])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [weights],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
    )
    return read_model(proto.SerializeToString())


@pytest.mark.parametrize(("count", "is_cut"), [(1, False), (9, True), (40, False)])
def test_a_model_is_cut_where_that_is_clearly_better_than_either_alone(
    count: int, is_cut: bool
) -> None:
    model, core = product(count), DividingCore()
    choice = weighed(model, answers(model, "Trilu"), core)
    assert (choice is not None and choice.is_cut) is is_cut
    if count == 1:
        assert choice is None
        return
    assert choice is not None
    assert choice.is_taken
    moved = {f"t{place}": "ONNXRUNTIME" for place in range(2, count)}
    if is_cut:
        assert choice.device == "HETERO:CPU,ONNXRUNTIME"
        assert choice.config["AFFINITY"].items() >= moved.items()
        assert choice.config["of"] == choice.device
        assert choice.config["parts"] == ("CPU", "ONNXRUNTIME")
    else:
        assert choice.device == "ONNXRUNTIME"


def test_no_node_gains_by_a_device_that_has_nothing_but_numpy() -> None:
    model = product(9)
    prices = Prices(model, answers(model, "Trilu"))
    assert len(prices.moved("ONNXRUNTIME")) == 9
    assert prices.moved("REFERENCE") == {}
    assert prices.least_s("REFERENCE") == prices.whole_s("CPU")
    assert prices.least_s("ONNXRUNTIME") < prices.whole_s("ONNXRUNTIME")


def test_who_would_not_be_clearly_quicker_is_not_even_asked() -> None:
    model, core = product(1), DividingCore()

    def takes(_: str) -> bool:
        raise AssertionError("nobody had to be asked")

    found = weigh(
        core, model, "CPU", {"CPU": answers(model, "Trilu")}, lambda: ["ONNXRUNTIME"], takes,
        lambda device, parts: {},
    )  # type: ignore[arg-type]  # fmt: skip
    assert found is None


def test_who_refuses_a_node_is_not_chosen() -> None:
    model, core = chain(["Trilu", "Relu"]), DividingCore()
    assert weighed(model, answers(model, "Trilu"), core, takes=False) is None


def test_small_steps_by_numpy_stay_where_a_run_is_short() -> None:
    for count, goes in ((1, False), (8, True)):
        model = chain(count * ["Trilu"], (4, 4))
        choice = weighed(model, answers(model, "Trilu"), DividingCore())
        assert (choice is not None and choice.is_taken) is goes


def test_open_lengths_are_supposed_but_for_the_first() -> None:
    model = chain(["Relu"], ("batch", "length", 3))
    assert supposed_shapes(model.graph) == {"p": (1, 64, 3), "n0": (1, 64, 3)}
    assert supposed_shapes(chain(["Relu"]).graph) == {}


def test_numpy_takes_longer_than_compiled_code_by_the_operator() -> None:
    model = chain(["Trilu", "Abs", "Hardmax"], (1, 1 << 20))
    triangle, other, largest = (numpy_s(node, node_cost(node, {})) for node in model.graph.nodes)
    assert triangle > other > largest > (1 << 23) / 8e9
    node = model.node("n0")
    assert 0 < numpy_s(node, NodeCost(1.0, 4.0)) < 1e-4
    assert numpy_s(node, NodeCost(0.0, 0.0)) == 0


@pytest.mark.parametrize(("length", "device"), [(512, "ONNXRUNTIME.CPU"), (2, "CPU.0")])
def test_auto_leaves_what_numpy_computes_to_onnxruntime_if_that_is_quicker(
    core: aioinfer.Core, length: int, device: str
) -> None:
    for name in ("CPU", "ONNXRUNTIME"):
        skip_if_missing(core, name)
    proto = graph("y@0 = Trilu(p)", "y", shape=(4, length, length))
    support = core.query_network(proto, "CPU")
    assert support["y"] == BY_NUMPY
    with core.load_network(proto, "AUTO:CPU,ONNXRUNTIME") as network:
        assert network.device == device
        assert ("is expected to take" in network.explain()) is (length > 2)
    with core.load_network(proto, "AUTO:CPU") as network:
        assert network.device == "CPU.0"


SCANNED = """g ({kind}[4] p, {kind}[T,4] rows) => ({kind}[4] last, {kind}[T,4] y) {{
    last, y = Scan<num_scan_inputs = 1, body = b ({kind}[4] s, {kind}[4] row)
        => ({kind}[4] next, {kind}[4] gap) {{
            moved = Sub(row, s)
            gap = Abs(moved)
            next = Identity(s)
        }}
    >(p, rows)
}}"""


@pytest.mark.parametrize(("kind", "length", "device"), [
    ("double", "100", "ONNXRUNTIME.CPU"), ("double", "T", "ONNXRUNTIME.CPU"),
    ("float", "100", "CPU.0"),
])  # fmt: skip
def test_what_a_body_repeats_by_numpy_counts_as_often(
    core: aioinfer.Core, kind: str, length: str, device: str
) -> None:
    for name in ("CPU", "ONNXRUNTIME"):
        skip_if_missing(core, name)
    proto = parse_proto(SCANNED.format(kind=kind).replace("T", length), 18, ir_version=9)
    support = core.query_network(proto, "CPU")
    assert [answer.implementation for answer in support.values()] == (
        ["numpy"] if kind == "double" else [""]
    )
    with core.load_network(proto, "AUTO:CPU,ONNXRUNTIME") as network:
        assert network.device == device


def test_turns_are_those_of_the_model_or_supposed() -> None:
    def takes_s(length: str) -> float:
        proto = parse_proto(SCANNED.format(kind="double").replace("T", length), 18, ir_version=9)
        (node,) = read_model(proto).graph.nodes
        return numpy_s(node, NodeCost(1.0, 4.0))

    assert takes_s("T") == takes_s("16") == 16 * takes_s("1")


@pytest.mark.parametrize(("count", "turns"), [(3, 3), (0, 0), (-1, 16), (2**63 - 1, 16)])
def test_a_bound_of_a_loop_is_no_count(count: int, turns: int) -> None:
    text = """g (double[4] p) => (double[4] y) {
        n = Constant<value_int = COUNT>()
        y = Loop(n, , p) <body = b (int64 i, bool c, double[4] s) => (bool d, double[4] t) {
            d = Identity(c)
            t = Neg(s)
        }>
    }""".replace("COUNT", str(count))
    node = next(
        node
        for node in read_model(parse_proto(text, 18, ir_version=9)).graph.nodes
        if node.op_type == "Loop"
    )
    assert numpy_s(node, NodeCost(1.0, 4.0)) == pytest.approx(turns * 2 * 20e-6, rel=1e-3)
