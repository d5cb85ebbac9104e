"""Deep copies of graphs that share the bytes of constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .graph import Attribute, Graph, Node, Value

__all__ = ["copy_graph", "copy_node"]


def copy_graph(graph: Graph, outer: Mapping[Value, Value] | None = None) -> Graph:
    """Copy nodes, values and bodies; arrays are shared. Names, order and uses stay the same.

    ``outer`` maps captured values to those that the copy captures; others are captured as they are.
    """
    mapping: dict[Value, Value] = dict(outer or {})
    copied = Graph(graph.name, copy_values(graph.inputs, mapping))
    for value in graph.initializers.values():
        copied.add_initializer(copy_values([value], mapping)[0])
    for node in graph.nodes:
        copied.append(copy_node(node, mapping))
    copied.outputs = [mapping.get(value, value) for value in graph.outputs]
    return copied


def copy_node(node: Node, mapping: dict[Value, Value]) -> Node:
    """Copy a node, without putting it in a graph; its outputs are added to the mapping."""
    copied = Node(
        node.op_type,
        [mapping.get(value, value) if value is not None else None for value in node.inputs],
        copy_values(node.outputs, mapping),
        {key: _copy_attribute(item, mapping) for key, item in node.attributes.items()},
        name=node.name,
        domain=node.domain,
        fused_from=node.fused_from,
        metadata=node.metadata,
    )
    copied.type_rule, copied.user_kernel = node.type_rule, node.user_kernel
    return copied


def copy_values(values: Iterable[Value], mapping: dict[Value, Value]) -> list[Value]:
    """Make a fresh value of the same name, type and content for each; note it in the mapping."""
    fresh = []
    for value in values:
        copied = mapping[value] = Value(value.name, value.type, value.constant)
        fresh.append(copied)
    return fresh


def _copy_attribute(attribute: Attribute, mapping: Mapping[Value, Value]) -> Attribute:
    if isinstance(attribute, Graph):
        return copy_graph(attribute, mapping)
    if isinstance(attribute, list):
        is_of_graphs = bool(attribute) and isinstance(attribute[0], Graph)
        return (
            [_copy_attribute(item, mapping) for item in attribute] if is_of_graphs else [*attribute]
        )
    return attribute
