"""Facts about a graph that passes require and guarantee: a name and a predicate for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ...graph import Graph, TensorType, Value, is_static
from .node_traits import is_dead

__all__ = ["PROPERTIES", "Property"]

Property = Callable[[Graph], str | None]
"""Says where the property fails first in this graph, bodies not included; None: it holds."""


def _topological_order(graph: Graph) -> str | None:
    own = {value for node in graph.nodes for value in node.outputs}
    made: set[Value] = set()
    for node in graph.nodes:
        for value in node.dependencies():
            if value in own and value not in made:
                return f"node {node.name!r} comes before the maker of {value.name!r}"
        made.update(node.outputs)
    return None


def _no_constant_nodes(graph: Graph) -> str | None:
    for node in graph.nodes_of("Constant"):
        if "sparse_value" not in node.attributes:
            return f"node {node.name!r} is a Constant"
    return None


def _no_dead_nodes(graph: Graph) -> str | None:
    return next((f"nothing uses node {node.name!r}" for node in graph.nodes if is_dead(node)), None)


def _no_unused_constants(graph: Graph) -> str | None:
    for value in graph.initializers.values():
        if not value.uses and not value.is_graph_output:
            return f"nothing uses constant {value.name!r}"
    return None


def _static_shapes(graph: Graph) -> str | None:
    for value in _values(graph):
        if not isinstance(value.type, TensorType) or not is_static(value.type.shape):
            return f"value {value.name!r} is {value.type or 'of unknown type'}"
    return None


def _known_types(graph: Graph) -> str | None:
    return next(
        (f"the type of {value.name!r} is not known" for value in _values(graph) if not value.type),
        None,
    )


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs


PROPERTIES: Mapping[str, Property] = {
    "known types": _known_types,
    "no Constant nodes": _no_constant_nodes,
    "no dead nodes": _no_dead_nodes,
    "no unused constants": _no_unused_constants,
    "static shapes": _static_shapes,
    "topological order": _topological_order,
}
