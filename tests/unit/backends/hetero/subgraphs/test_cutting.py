"""Pieces of a model and the tables that tie them together; numbers are rows of the guide's list.

In the drawings `add@0` is a node and the number of its device, p an input, k a constant.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from aioinfer.backends.hetero.subgraphs.cutting import CutModel, cut_model, node_edges
from aioinfer.backends.hetero.subgraphs.schedule import execution_order
from aioinfer.backends.hetero.subgraphs.selection import Subgraph, select_subgraphs
from aioinfer.errors import GraphError
from aioinfer.runtime.graph import Graph, Model, Value, check_graph
from aioinfer.runtime.graph.traversal import all_nodes
from aioinfer.runtime.onnx_reader import read_model
from unit.backends.hetero.small_graphs import affinity, model


def cut(whole: Model, devices: dict[str, str]) -> CutModel:
    names = [node.name for node in whole.graph.nodes]
    edges = node_edges(whole.graph)
    subgraphs = select_subgraphs(names, edges, devices, sorted(set(devices.values())))
    ordered = [subgraphs[index] for index in execution_order(subgraphs, edges, names)]
    pieces = cut_model(whole, ordered)
    for piece in pieces.subgraphs:
        check_graph(piece.model.graph)
    return pieces


def cut_text(text: str, outputs: str, inputs: str | None = None) -> CutModel:
    return cut(model(text, outputs, inputs), affinity(text))


def runs(pieces: CutModel) -> list[str]:
    return [",".join(piece.nodes) for piece in pieces.subgraphs]


def links(pieces: CutModel) -> dict[str, tuple]:
    return {link.value: (link.source, *link.targets) for link in pieces.links}


def constant_counts(pieces: CutModel) -> list[int]:
    return [len(piece.model.graph.initializers) for piece in pieces.subgraphs]


def ports(pieces: CutModel, index: int) -> tuple[list[str], list[str]]:
    piece = pieces.subgraphs[index].model
    return [value.name for value in piece.inputs], [value.name for value in piece.outputs]


# 8.            +-> add2@0 -> sub@1 --+
#   p -> add1@0-+                     +-> add3@0 -> reshape@0 -> out
#               +---------------------+
def test_row_8_a_diamond() -> None:
    pieces = cut_text(
        """
        add1@0 = Relu(p)
        add2@0 = Relu(add1)
        sub@1 = Neg(add2)
        add3@0 = Add(add1, sub)
        reshape@0 = Relu(add3)
        """,
        "reshape",
    )
    assert runs(pieces) == ["add1,add2", "sub", "add3,reshape"]
    assert pieces.inputs == (((0, 0),),)
    assert pieces.outputs == ((2, 0),)
    assert links(pieces) == {
        "add2": ((0, 0), (1, 0)),
        "add1": ((0, 1), (2, 0)),
        "sub": ((1, 0), (2, 1)),
    }
    assert [link.bytes for link in pieces.links] == [24, 24, 24]
    assert pieces.needs() == [[], [0], [0, 1]]


# 11. A = p + k2 @0; X = A + k @0 -> out2; B = f(A) @1; C = B + k @0 -> out1
def test_row_11_original_ports_come_before_inserted_ones() -> None:
    pieces = cut_text(
        """
        a@0 = Add(p, k2)
        x@0 = Add(a, k)
        b@1 = Relu(a)
        c@0 = Add(b, k)
        """,
        "c x",
    )
    assert runs(pieces) == ["a,x", "b", "c"]
    assert pieces.inputs == (((0, 0),),)
    assert pieces.outputs == ((2, 0), (0, 0))
    assert links(pieces) == {"a": ((0, 1), (1, 0)), "b": ((1, 0), (2, 0))}
    assert constant_counts(pieces) == [2, 0, 1]


# 14. A = f(p) @0; B = A + k @1; X = f(k) @0 -> out2; C = B + X @0 -> out1
def test_row_14_a_node_of_constants_only_is_cut_like_any_other() -> None:
    pieces = cut_text(
        """
        a@0 = Relu(p)
        b@1 = Add(a, k)
        x@0 = Relu(k)
        c@0 = Add(b, x)
        """,
        "c x",
    )
    assert runs(pieces) == ["a", "b", "x,c"]
    assert pieces.inputs == (((0, 0),),)
    assert pieces.outputs == ((2, 0), (2, 1))
    assert links(pieces) == {"a": ((0, 0), (1, 0)), "b": ((1, 0), (2, 0))}


# 16. A = p + k1; X = A + k2 -> out; B = f(A) @1; C = B + k1 -> out; Z = f(k2) -> out; rest @0
def test_row_16_each_subgraph_has_its_own_reference_to_a_constant() -> None:
    pieces = cut_text(
        """
        a@0 = Add(p, k1)
        x@0 = Add(a, k2)
        b@1 = Relu(a)
        c@0 = Add(b, k1)
        z@0 = Relu(k2)
        """,
        "c x z",
    )
    assert runs(pieces) == ["a,x", "b", "c", "z"]
    assert pieces.outputs == ((2, 0), (0, 0), (3, 0))
    assert links(pieces) == {"a": ((0, 1), (1, 0)), "b": ((1, 0), (2, 0))}
    assert constant_counts(pieces) == [2, 0, 1, 1]
    first = pieces.subgraphs[0].model.graph.initializers["k1"]
    again = pieces.subgraphs[2].model.graph.initializers["k1"]
    assert first is not again
    assert np.shares_memory(first.constant, again.constant)


# 17. A = p1 + p2; X = A + k -> out; B = f(A) @1 -> out; C = B + p2 -> out; F = B + k -> out
def test_row_17_an_output_that_also_crosses_is_exported_once() -> None:
    pieces = cut_text(
        """
        a@0 = Add(p1, p2)
        x@0 = Add(a, k)
        b@1 = Relu(a)
        c@0 = Add(b, p2)
        f@0 = Add(b, k)
        """,
        "c f x b",
    )
    assert runs(pieces) == ["a,x", "b", "c", "f"]
    assert pieces.inputs == (((0, 0),), ((0, 1), (2, 0)))
    assert pieces.outputs == ((2, 0), (3, 0), (0, 0), (1, 0))
    assert links(pieces) == {"a": ((0, 1), (1, 0)), "b": ((1, 0), (2, 1), (3, 0))}
    assert constant_counts(pieces) == [1, 0, 0, 1]
    assert ports(pieces, 2) == (["p2", "b"], ["c"])


# 9. a1@0 > b1@1 > a2@0 > b2@1 > a3@0, a1 > a3
def test_row_9_a_value_goes_to_two_subgraphs_by_one_output() -> None:
    pieces = cut_text(
        """
        a1@0 = Add(p, k)
        b1@1 = Add(a1, k)
        a2@0 = Add(b1, k)
        b2@1 = Add(a2, k)
        a3@0 = Add(a1, b2)
        """,
        "a3",
    )
    assert runs(pieces) == ["a1", "b1", "a2", "b2", "a3"]
    assert links(pieces)["a1"] == ((0, 0), (1, 0), (4, 0))


def test_row_10_an_unused_input_goes_nowhere() -> None:
    pieces = cut_text("add1@0 = Relu(p1)\nadd2@1 = Relu(add1)", "add2", inputs="p1 p2")
    assert pieces.inputs == (((0, 0),), ())


def test_an_input_that_one_subgraph_takes_twice_is_one_port() -> None:
    pieces = cut_text("a@0 = Add(p, p)\nb@1 = Mul(a, a)", "b")
    assert pieces.inputs == (((0, 0),),)
    assert links(pieces) == {"a": ((0, 0), (1, 0))}


# https://github.com/openvinotoolkit/openvino/issues/35750: a constant shared by distant nodes.
def test_a_shared_constant_neither_joins_nor_crosses() -> None:
    text = """
        a@0 = Add(p, k)
        b@1 = Add(a, k)
        c@0 = Add(b, k)
        d@1 = Add(c, k)
    """
    pieces = cut_text(text, "d")
    assert runs(pieces) == ["a", "b", "c", "d"]
    assert sorted(links(pieces)) == ["a", "b", "c"]
    assert constant_counts(pieces) == [1, 1, 1, 1]


def test_the_model_given_stays_as_it_is() -> None:
    text = "a@0 = Add(p, k)\nb@1 = Mul(a, k)"
    whole = model(text, "b")
    before = str(whole)
    uses = {value.name: len(value.uses) for value in _values(whole.graph)}
    cut(whole, affinity(text))
    assert str(whole) == before
    assert {value.name: len(value.uses) for value in _values(whole.graph)} == uses


def test_outputs_that_no_node_makes_are_named() -> None:
    whole = read_model(
        parser.parse_model(
            """
            <ir_version: 10, opset_import: ["" : 20]>
            g (float[2] p) => (float[2] a, float[2] k)
            <float[2] k = {1, 2}> { [a] a = Relu(p) }
            """
        )
    )
    whole.graph.outputs = [*whole.graph.outputs, whole.graph.inputs[0]]
    pieces = cut(whole, {"a": "MOCK.0"})
    assert pieces.outputs == ((0, 0), None, None)
    assert pieces.passed_inputs == {2: "p"}
    assert pieces.constants[1].tolist() == [1, 2]


# c@0 -> if@1, whose bodies capture a (of c's subgraph), p and k.
CAPTURING = """
    <ir_version: 10, opset_import: ["" : 20]>
    g (float[2] p, bool flag) => (float[2] out)
    <float[2] k = {1, 2}> {
        [a] a = Relu(p)
        [b] b = Neg(a)
        [if] out = If (flag) <
            then_branch = t () => (float[2] t_out) { [then] t_out = Add(a, k) },
            else_branch = e () => (float[2] e_out) {
                [inner] e_out = If (flag) <
                    then_branch = i () => (float[2] i_out) { [deep] i_out = Mul(b, p) },
                    else_branch = j () => (float[2] j_out) { [last] j_out = Add(k, k) }
                >
            }
        >
    }
"""


def test_what_a_body_captures_crosses_like_an_input() -> None:
    whole = read_model(parser.parse_model(CAPTURING))
    pieces = cut(whole, {"a": "MOCK.0", "b": "MOCK.0", "if": "MOCK.1"})
    assert runs(pieces) == ["a,b", "if"]
    assert ports(pieces, 0) == (["p"], ["a", "b"])
    assert ports(pieces, 1) == (["p", "flag", "a", "b"], ["out"])
    assert constant_counts(pieces) == [0, 1]
    graph = pieces.subgraphs[1].model.graph
    own = {*graph.inputs, *graph.initializers.values()}
    inner = {node.name: node for node in all_nodes(graph)}
    assert set(inner["then"].inputs) <= own
    assert set(inner["deep"].inputs) <= own
    assert {value.name for value in inner["deep"].inputs} == {"b", "p"}


def test_a_node_without_a_subgraph_is_refused() -> None:
    whole = model("a@0 = Relu(p)\nb@0 = Relu(a)", "b")
    with pytest.raises(GraphError, match="node 'b' is in no subgraph"):
        cut_model(whole, [Subgraph("MOCK.0", ("a",))])


def _values(graph: Graph) -> list[Value]:
    values = [*graph.inputs, *graph.initializers.values()]
    return values + [value for node in graph.nodes for value in node.outputs]
