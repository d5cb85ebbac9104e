"""Work grows with the size of the model, not with its square: counted in calls, not in seconds."""

import sys
from types import FrameType
from typing import Any

from aioinfer.runtime.graph import Graph, Model, Node, TensorType, Value
from aioinfer.runtime.graph.dtype import DType
from aioinfer.runtime.passes import default_passes, run_passes

FLOATS = TensorType(DType.FLOAT32, (2,))


def _chain(count: int, op_types: list[str], fan_out: bool = False) -> Model:
    graph = Graph("chain", [Value("x", FLOATS)])
    value = graph.inputs[0]
    for index in range(count):
        op_type = op_types[index % len(op_types)]
        node = Node(op_type, [value], [Value(f"v{index}", FLOATS)], name=f"n{index}")
        graph.append(node)
        if not fan_out:
            value = node.outputs[0]
    graph.outputs = [node.outputs[0]]
    return Model(graph, {"": 26})


def _count_calls(model: Model) -> int:
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        run_passes(model, default_passes())
    finally:
        sys.setprofile(previous)
    return count


def test_a_chain_of_5000_relus_costs_a_bounded_number_of_calls_per_node() -> None:
    model = _chain(5000, ["Relu"])
    assert _count_calls(model) < 300 * 5000
    assert len(model.graph) == 5000


def test_rewriting_costs_grow_linearly_with_the_number_of_rewrites() -> None:
    small, large = _chain(500, ["Identity", "Neg"]), _chain(2000, ["Identity", "Neg"])
    ratio = _count_calls(large) / _count_calls(small)
    assert len(large.graph) == 1000
    assert ratio < 5


def test_merging_many_equal_users_of_one_value_is_linear() -> None:
    small, large = _chain(500, ["Neg"], fan_out=True), _chain(2000, ["Neg"], fan_out=True)
    ratio = _count_calls(large) / _count_calls(small)
    assert [len(small.graph), len(large.graph)] == [1, 1]
    assert ratio < 5
