"""What a lowering says of values, of its place in the graph, and of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aioinfer.errors import GraphError, NotSupportedError, UnsupportedOpError
from aioinfer.runtime.graph import DType, Graph, Model, Node, OptionalType, TensorType, Value
from aioinfer.runtime.lowering.node_operands import Lowering, NodeOrigin, place_buffers


class Walk(Lowering):
    """A lowering whose origins and places are seen from outside."""

    def define_constant(self, value: Value, array: np.ndarray[Any, Any]) -> None:
        raise AssertionError("nothing is lowered here")

    def origins(self) -> list[NodeOrigin]:
        return [*(self._origin() for _ in self._nodes()), self._origin()]

    def shapes_asked_by_nodes(self, value: Value) -> None:
        for _ in self._nodes():
            self.shape(value)


def walk_of(*nodes: Node, float_dtype: DType = DType.FLOAT32) -> Walk:
    graph = Graph("g", [], [])
    for node in nodes:
        graph.append(node)
    return Walk(Model(graph, {"": 21}), "TOY.1", float_dtype)


def node_of(name: str, result: Value) -> Node:
    return Node("Relu", [None], [result], name=name)


def test_shapes_and_types_of_what_is_known() -> None:
    walk = walk_of(float_dtype=DType.FLOAT16)
    floats = Value("x", TensorType(DType.FLOAT32, (2, 3)))
    known = Value("c", None, np.zeros((4, 1), np.int64))
    assert (walk.shape(floats), walk.shape(known)) == ((2, 3), (4, 1))
    assert (walk.dtype(floats), walk.dtype(known)) == (DType.FLOAT32, DType.INT64)
    assert (walk.held_dtype(floats), walk.held_dtype(known)) == (DType.FLOAT16, DType.INT64)
    assert walk.constant(known) is known.constant
    assert walk.constant(floats) is None
    assert walk.constant(None) is None


@pytest.mark.parametrize(
    "kind", [None, TensorType(DType.INT8, None), TensorType(DType.INT8, (2, "n"))]
)
def test_a_shape_that_depends_on_data_is_named(kind: TensorType | None) -> None:
    with pytest.raises(NotSupportedError, match=r"^TOY\.1: the shape of 'x' depends on data"):
        walk_of().shape(Value("x", kind))


def test_what_is_no_tensor_is_refused_where_no_node_is_to_blame() -> None:
    passed = Value("x", OptionalType(TensorType(DType.INT32, ())))
    with pytest.raises(NotSupportedError, match=r"'x' is optional\(int32\[\]\), and TOY\.1 takes"):
        walk_of().shape(passed)


def test_the_node_that_is_lowered_is_named() -> None:
    walk = walk_of(node_of("relu", Value("y")))
    with pytest.raises(
        UnsupportedOpError,
        match=r"^TOY\.1 cannot run Relu \(node 'relu'\): the shape .*; try device",
    ):
        walk.shapes_asked_by_nodes(Value("x"))


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(GraphError, match="type of 'x' is unknown; declare it"):
        walk_of().dtype(Value("x"))


def test_nodes_of_constants_are_passed_over_and_outputs_belong_to_none() -> None:
    folded = node_of("folded", Value("c", None, np.zeros(1, np.float32)))
    first, second, last = walk_of(
        folded, node_of("a", Value("y")), node_of("b", Value("z"))
    ).origins()
    assert (first.name, first.op, first.is_delivery) == ("a", "Relu", False)
    assert second.name == "b"
    assert last == NodeOrigin("outputs", "Output", (), is_delivery=True)


@dataclass(frozen=True, eq=False)
class Buffer:
    kind: str
    size_bytes: int


def test_buffers_of_the_arena_share_memory_in_turn() -> None:
    a, b, c = (Buffer("arena", 100) for _ in range(3))
    weights = Buffer("constant", 1000)
    offsets, size_bytes = place_buffers([[a], [a, weights, b], [b, c]], 128)
    assert offsets.keys() == {a, b, c}
    assert offsets[a] == offsets[c] != offsets[b]
    assert size_bytes == 256


def test_a_buffer_lives_from_its_first_to_its_last_step() -> None:
    a, b = Buffer("arena", 64), Buffer("arena", 64)
    offsets, _ = place_buffers([[a], [b], [a]])
    assert offsets[a] != offsets[b]


def test_a_plan_without_buffers_takes_no_memory() -> None:
    assert place_buffers([[], [Buffer("input", 10)]]) == ({}, 0)
