"""Small graphs, built by hand."""

import numpy as np

from aioinfer.runtime.graph import DType, Graph, Node, TensorType, Value

FLOAT4 = TensorType(DType.FLOAT32, (4,))


def node(op_type: str, inputs: list[Value | None], name: str, *outputs: str) -> Node:
    """Make a node whose outputs are called as given, by default one that is called as the node."""
    values = [Value(output, FLOAT4) for output in outputs or (f"{name}_out",)]
    return Node(op_type, inputs, values, name=name)


def chain(*op_types: str) -> Graph:
    """Make x -> op -> op -> ... -> output; the nodes are called n0, n1 and so on."""
    value = Value("x", FLOAT4)
    graph = Graph("chain", [value])
    for index, op_type in enumerate(op_types):
        value = graph.append(node(op_type, [value], f"n{index}")).outputs[0]
    graph.outputs = [value]
    return graph


def weight(name: str = "w") -> Value:
    """Make a constant of four floats, in no graph."""
    return Value(name, FLOAT4, np.arange(4, dtype=np.float32))


def with_branches() -> Graph:
    """Make an If whose branches capture a value, an input and a constant of the outer graph."""
    x, condition, w = Value("x", FLOAT4), Value("c", TensorType(DType.BOOL, ())), weight()
    graph = Graph("outer", [x, condition])
    graph.add_initializer(w)
    relu = graph.append(node("Relu", [x], "relu"))
    yes, no = Graph("yes"), Graph("no")
    yes.outputs = yes.append(node("Add", [relu.outputs[0], w], "add")).outputs
    no.outputs = no.append(node("Neg", [x], "neg")).outputs
    branches = {"then_branch": yes, "else_branch": no}
    choice = graph.append(Node("If", [condition], [Value("y", FLOAT4)], branches, name="choice"))
    graph.outputs = choice.outputs
    return graph


def nodes_by_name(graph: Graph) -> dict[str, Node]:
    """Find the nodes of a graph and of its bodies by their names."""
    found = {}
    for item in graph.nodes:
        found[item.name] = item
        for body in item.bodies():
            found.update(nodes_by_name(body))
    return found
