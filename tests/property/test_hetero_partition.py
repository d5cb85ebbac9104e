"""A partitioned model gives what the whole model gives: random graphs, random affinities."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import aioinfer
from aioinfer.backends.hetero.subgraphs.cutting import cut_model, node_edges
from aioinfer.backends.hetero.subgraphs.schedule import execution_order
from aioinfer.backends.hetero.subgraphs.selection import select_subgraphs
from aioinfer.runtime.graph import check_graph
from aioinfer.runtime.onnx_reader import read_model
from exhaustive import drawn
from unit.backends.hetero.small_graphs import new_core

SHAPE = [2, 3]
DEVICES = ["REFERENCE.0", "REFERENCE.1"]
UNARY = ["Relu", "Neg", "Abs", "Sigmoid", "Identity"]
BINARY = ["Add", "Mul", "Max", "Sub"]


@pytest.fixture(scope="module")
def core() -> Iterator[aioinfer.Core]:
    with new_core() as made:
        yield made


def _value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)


def random_model(source: random.Random, node_count: int) -> onnx.ModelProto:
    """Make a graph of elementwise nodes, with shared constants, captures and unused inputs."""
    constants = [f"k{index}" for index in range(source.randint(0, 3))]
    known = ["p0", "p1", *constants]
    nodes: list[onnx.NodeProto] = []
    for index in range(node_count):
        name = f"n{index}"
        kind = source.random()
        recent = known[-6:]
        if kind < 0.1:
            nodes.append(_branching(name, recent, source))
        elif kind < 0.45:
            nodes.append(helper.make_node(source.choice(UNARY), [source.choice(recent)], [name]))
        else:
            pair = [source.choice(recent), source.choice(known)]
            nodes.append(helper.make_node(source.choice(BINARY), pair, [name]))
        nodes[-1].name = name
        known.append(name)
    made = [node.name for node in nodes]
    outputs = source.sample(made, source.randint(1, min(3, len(made))))
    weights = [
        numpy_helper.from_array(np.full(SHAPE, 0.5 + index, np.float32), name)
        for index, name in enumerate(constants)
    ]
    flag = numpy_helper.from_array(np.array(source.random() < 0.5), "flag")
    inputs = [_value("p0"), _value("p1")]
    graph = helper.make_graph(
        nodes, "random", inputs, [_value(name) for name in outputs], [*weights, flag]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _branching(name: str, known: list[str], source: random.Random) -> onnx.NodeProto:
    """Make an If whose branches use outer values; ``flag`` is constant, the captures are not."""
    branches = []
    for side in ("then", "else"):
        pair = [source.choice(known), source.choice(known)]
        inner = helper.make_node(source.choice(BINARY), pair, [f"{name}_{side}"])
        inner.name = f"{name}_{side}"
        branches.append(helper.make_graph([inner], side, [], [_value(f"{name}_{side}")]))
    return helper.make_node(
        "If", ["flag"], [name], then_branch=branches[0], else_branch=branches[1]
    )


@settings(max_examples=drawn(40))
@given(st.integers(0, 2**32), st.integers(1, 14), st.integers(1, 9))
def test_partitioned_output_equals_unpartitioned_output(
    core: aioinfer.Core, seed: int, node_count: int, tenths: int
) -> None:
    source = random.Random(seed)
    model = core.read_model(random_model(source, node_count))
    affinity = {node.name: DEVICES[source.random() < tenths / 10] for node in model.graph.nodes}
    inputs = {
        name: np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)
        for name in ("p0", "p1")
    }
    with (
        core.load_network(model, "REFERENCE") as whole,
        core.load_network(model, "HETERO:REFERENCE.0,REFERENCE.1", {"AFFINITY": affinity}) as parts,
    ):
        expected = whole.create_infer_request().infer_sync(inputs)
        results = parts.create_infer_request().infer_sync(inputs)
        described = parts.partition
    assert list(results) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array)
    executed = [node.original_nodes for part in described.subgraphs for node in part.nodes]
    originals = {name for names in executed for name in names} | set(described.removed_nodes)
    assert originals == set(affinity)


@settings(max_examples=drawn(60))
@given(st.integers(0, 2**32), st.integers(1, 20))
def test_every_value_that_crosses_is_mapped_exactly_once(seed: int, node_count: int) -> None:
    source = random.Random(seed)
    model = read_model(random_model(source, node_count))
    names = [node.name for node in model.graph.nodes]
    affinity = {name: source.choice("ABC") for name in names}
    edges = node_edges(model.graph)
    subgraphs = select_subgraphs(names, edges, affinity, "ABC")
    ordered = [subgraphs[index] for index in execution_order(subgraphs, edges, names)]
    cut = cut_model(model, ordered)
    fed: list[tuple[int, int]] = [place for places in cut.inputs for place in places]
    for link in cut.links:
        assert all(link.source.subgraph < target.subgraph for target in link.targets)
        fed += link.targets
        piece = cut.subgraphs[link.source.subgraph].model
        assert piece.outputs[link.source.port].name == link.value
    wanted = [
        (index, port)
        for index, piece in enumerate(cut.subgraphs)
        for port in range(len(piece.model.inputs))
    ]
    assert sorted(fed) == wanted
    for piece in cut.subgraphs:
        check_graph(piece.model.graph)
        outputs = [value.name for value in piece.model.outputs]
        assert len(outputs) == len(set(outputs))
