"""The wiring of a proto, checked and put in order before onnx's C++ parts rely on it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Set

import onnx

from ....errors import ModelError
from ...onnx_writer.types import type_from_proto

__all__ = [
    "NodeProtos",
    "all_nodes",
    "all_tensors",
    "body_protos",
    "name_unused_outputs",
    "order_nodes",
    "value_names",
]

NodeProtos = MutableSequence[onnx.NodeProto]
"""The repeated field that holds nodes, or a list of them."""


def body_protos(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """Walk the control-flow bodies of a node, each with a name: that of its attribute.

    Where an attribute holds several, a number follows.
    """
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for index, graph in enumerate(attribute.graphs):
            yield f"{attribute.name}_{index}", graph


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Walk nodes and those of their bodies, a node before its bodies."""
    for node in nodes:
        yield node
        for _, body in body_protos(node):
            yield from all_nodes(body.node)


def all_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """Walk the tensors among the attributes of nodes and in their bodies."""
    for node in all_nodes(nodes):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for _, body in body_protos(node):
            yield from body.initializer


def value_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Walk the names of all values of a graph and of its bodies."""
    yield from (item.name for item in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from node.output
        for _, body in body_protos(node):
            yield from value_names(body)


def order_nodes(model: onnx.ModelProto) -> None:
    """Put all nodes in topological order, as near to the file's order as that allows.

    Unused outputs at the end of a node's list are cut off. Raises ModelError for a value that is
    used and not defined, or defined twice, for a type that does not exist and for a cycle.
    O((V+E) log V).
    """
    _order_graph(model.graph, frozenset())
    for function in model.functions:
        place = f"function {function.name!r}"
        defined = _unique([*function.input], place)
        _order(function.node, defined, frozenset(), place)
        _check_defined(function.output, defined, place)


def _order_graph(graph: onnx.GraphProto, outer: Set[str]) -> None:
    place = f"graph {graph.name!r}"
    for item in (*graph.input, *graph.output, *graph.value_info):
        type_from_proto(item.type, f"value {item.name!r}")
    inputs = _unique((item.name for item in graph.input), f"the inputs of {place}")
    constants = _unique((item.name for item in graph.initializer), f"the initializers of {place}")
    defined = inputs | constants
    if "" in defined:
        raise ModelError(f"{place} has an input or initializer without a name")
    _order(graph.node, defined, outer, place)
    _check_defined([item.name for item in graph.output], defined | outer, place)


def _unique(names: Iterable[str], place: str) -> set[str]:
    found: set[str] = set()
    for name in names:
        if name in found:
            raise ModelError(f"{place} name {name!r} twice")
        found.add(name)
    return found


def _check_defined(names: Iterable[str], defined: Set[str], place: str) -> None:
    for name in names:
        if name not in defined:
            raise ModelError(f"{place} returns {name!r}, which nothing in it defines")


def _order(nodes: NodeProtos, defined: set[str], outer: Set[str], place: str) -> None:
    """Order one list of nodes and add what they make to ``defined``."""
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        _cut_unused_outputs(node)
        for name in node.output:
            if name and (name in defined or name in makers):
                raise ModelError(f"{place}: node {_label(node)} defines {name!r} a second time")
            if name:
                makers[name] = index
    known = defined | makers.keys()
    needs: list[set[int]] = []
    for node in nodes:
        used = [name for name in node.input if name]
        for _, body in body_protos(node):
            _order_graph(body, known | outer)
            used += _free_names(body)
        for name in used:
            if name not in known and name not in outer:
                raise ModelError(
                    f"{place}: node {_label(node)} uses {name!r}, which nothing defines"
                )
        needs.append({makers[name] for name in used if name in makers and name not in defined})
    order = _topological(needs)
    if len(order) < len(nodes):
        stuck = sorted(set(range(len(nodes))) - set(order))[:5]
        labels = ", ".join(_label(nodes[index]) for index in stuck)
        raise ModelError(f"{place} has a cycle; nodes on or behind it: {labels}")
    if order != list(range(len(nodes))):
        sorted_nodes = [nodes[index] for index in order]
        del nodes[:]
        nodes.extend(sorted_nodes)
    defined.update(makers)


def _cut_unused_outputs(node: onnx.NodeProto) -> None:
    # Old batch normalizations name all five outputs, which the converter refuses although the
    # names are empty. A node with bodies returns as much as they do.
    if any(True for _ in body_protos(node)):
        return
    while len(node.output) > 1 and not node.output[-1]:
        del node.output[-1]


def name_unused_outputs(model: onnx.ModelProto) -> None:
    """Give every output that the file leaves out a name, since a graph has no outputs without one.

    All nodes have unique names.
    """
    for node in all_nodes(model.graph.node):
        for index, name in enumerate(node.output):
            if not name:
                node.output[index] = f"{node.name}/unused_{index}"


def _topological(needs: list[set[int]]) -> list[int]:
    """Sort indices by what each needs, the smallest first among those that are free."""
    missing = [len(need) for need in needs]
    followers: Mapping[int, list[int]] = {index: [] for index in range(len(needs))}
    for index, need in enumerate(needs):
        for maker in need:
            followers[maker].append(index)
    ready = [index for index, count in enumerate(missing) if not count]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for follower in followers[index]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, follower)
    return order


def _free_names(graph: onnx.GraphProto) -> list[str]:
    """List the outer values that a body uses, itself or in bodies inside."""
    inside = {item.name for item in graph.input} | {item.name for item in graph.initializer}
    used: dict[str, None] = {}
    for node in graph.node:
        inside.update(node.output)
        used.update(dict.fromkeys(name for name in node.input if name))
        for _, body in body_protos(node):
            used.update(dict.fromkeys(_free_names(body)))
    used.update(dict.fromkeys(item.name for item in graph.output))
    return [name for name in used if name not in inside]


def _label(node: onnx.NodeProto) -> str:
    return f"{node.name!r} ({node.op_type})" if node.name else f"a {node.op_type} without a name"
