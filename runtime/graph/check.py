"""The invariants of the graph, checked."""

from __future__ import annotations

from ...errors import GraphError
from .graph import Graph, Node, Value

__all__ = ["check_graph"]


def check_graph(graph: Graph) -> None:
    """Raise GraphError for the first invariant that does not hold, here and in all bodies.

    Checked: producers and uses agree with nodes; topological order; everything used is defined
    before; node names and value names are unique; outputs are defined. O(V+E).
    """
    _check(graph, set())


def _check(graph: Graph, outer: set[Value]) -> None:
    where = f"graph {graph.name!r}"
    defined = set(outer)
    names: set[str] = set()
    for value in graph.inputs:
        if value.producer is not None:
            raise GraphError(f"{where}: input {value.name!r} is made by {value.producer.name!r}")
        _define(value, defined, names, where)
    for name, value in graph.initializers.items():
        if value.constant is None or value.producer is not None or value.name != name:
            raise GraphError(f"{where}: initializer {name!r} is not a named constant")
        _define(value, defined, names, where)
    node_names: set[str] = set()
    for node in graph.nodes:
        if node.graph is not graph:
            raise GraphError(f"{where}: node {node.name!r} believes to be in {node.graph!r}")
        if node.name in node_names:
            raise GraphError(f"{where}: two nodes are called {node.name!r}")
        node_names.add(node.name)
        _check_inputs(node, defined, where)
        for body in node.bodies():
            _check(body, defined)
        for index, value in enumerate(node.outputs):
            if value.producer is not node or value.output_index != index:
                raise GraphError(
                    f"{where}: output {value.name!r} of node {node.name!r} names another producer"
                )
            _define(value, defined, names, where)
    for value in graph.outputs:
        if value not in defined:
            raise GraphError(f"{where}: output {value.name!r} is not defined")


def _define(value: Value, defined: set[Value], names: set[str], where: str) -> None:
    if value in defined:
        raise GraphError(f"{where}: value {value.name!r} is defined twice")
    if value.name in names:
        raise GraphError(f"{where}: two values are called {value.name!r}")
    names.add(value.name)
    defined.add(value)
    for node, index in value.uses:
        if index >= len(node.inputs) or node.inputs[index] is not value:
            raise GraphError(
                f"{where}: value {value.name!r} lists a use that node {node.name!r} does not have"
            )


def _check_inputs(node: Node, defined: set[Value], where: str) -> None:
    for index, value in enumerate(node.inputs):
        if value is None:
            continue
        if (node, index) not in value.uses:
            raise GraphError(
                f"{where}: node {node.name!r} uses {value.name!r}, which does not know of it"
            )
        if value not in defined:
            raise GraphError(
                f"{where}: node {node.name!r} uses {value.name!r} before it is defined; sort the "
                f"nodes topologically, or define the value"
            )
