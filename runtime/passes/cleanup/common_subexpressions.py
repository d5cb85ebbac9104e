"""Compute once what is computed twice."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np

from ...graph import Attribute, Graph, Node, Value
from ...graph.sym_array import is_symbolic, key_of
from ...graph.sym_int import has_sym_ints, identity_of
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.node_traits import is_pure
from ..rewriting.pass_base import Pass

__all__ = ["CommonSubexpressions"]

_COMPARED_BYTES = 4096
"""Constants up to this size are equal if their content is; larger ones only if they share it."""


class CommonSubexpressions(Pass):
    """Merge nodes of one graph that surely compute the same: operator, attributes, inputs.

    The earlier node stays and stands for both. Not merged: random operators, nodes with bodies,
    operators of foreign domains, nodes of different affinity, and two nodes that both make an
    output of the graph, for an output has one name.
    """

    name = "common subexpressions"
    finds_all = cleans = True
    requires = frozenset({"topological order"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        alike: dict[Hashable, Node | dict[Hashable, Node]] = {}
        contents: dict[Value, Hashable] = {}
        for node in graph.nodes:
            if not is_pure(node):
                continue
            found = alike.setdefault(key := _key(node, contents), node)
            if found is node:
                continue
            if isinstance(found, Node):
                found = alike[key] = {_attributes_key(found): found}
            earlier = found.setdefault(_attributes_key(node), node)
            if earlier is not node and _may_merge(node, earlier):
                yield GraphPatch(f"merge {node.op} {node.name!r} into {earlier.name!r}").merge(
                    node, earlier
                )


def _may_merge(node: Node, earlier: Node) -> bool:
    pairs = zip(node.outputs, earlier.outputs, strict=True)
    return not any(old.is_graph_output and new.is_graph_output for old, new in pairs)


def _key(node: Node, contents: dict[Value, Hashable]) -> Hashable:
    """Identify a node but for its attributes, which may be long and are rarely asked for."""
    return (
        node.domain,
        node.op_type,
        node.affinity,
        len(node.outputs),
        tuple([_input_key(value, contents) for value in node.inputs]),
    )


def _attributes_key(node: Node) -> Hashable:
    return tuple(sorted((key, _attribute_key(item)) for key, item in node.attributes.items()))


def _input_key(value: Value | None, contents: dict[Value, Hashable]) -> Hashable:
    """Identify an input by its content if it is a small constant, else by itself."""
    if value is None or value.constant is None:
        return value
    if value not in contents:
        array = value.constant
        if is_symbolic(array):
            contents[value] = key_of(array)
            return contents[value]
        is_small = array.dtype != object and array.nbytes <= _COMPARED_BYTES
        contents[value] = _array_key(array) if is_small else ("shared", id(array))
    return contents[value]


def _attribute_key(attribute: Attribute) -> Hashable:
    if isinstance(attribute, np.ndarray):
        return _array_key(attribute)
    if has_sym_ints((attribute,)):
        return identity_of(attribute)
    if isinstance(attribute, list | tuple):
        return tuple(_attribute_key(item) for item in attribute)
    # 1, 1.0 and True are equal for Python, and so are 0.0 and -0.0.
    return (type(attribute).__name__, repr(attribute))


def _array_key(array: np.ndarray) -> Hashable:
    if array.dtype == object:
        return ("object", array.shape, tuple(repr(item) for item in array.reshape(-1)))
    return (array.dtype, array.shape, array.tobytes())
