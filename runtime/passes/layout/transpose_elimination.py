"""Remove Transposes that others undo, next to each other or with elementwise operators between.

Theory of operation. What stands between is a *region*: connected elementwise nodes in which all
computed values have one rank. The region can work on its values before they were transposed, if
what comes in and goes out is transposed instead. Where a Transpose stands there already, the two
cancel; elsewhere one is added. A region is rewritten only if fewer Transposes are left, so this
comes to an end. Only ranks need to be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...graph import DType, Graph, Node, TensorType, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, made_by, rank_of
from ..rewriting.pass_base import Pass
from ..rewriting.patch_check import have_one_affinity

__all__ = ["TransposeElimination"]

_Order = tuple[int, ...]
_Nodes = dict[Node, None]
"""A set whose order is the same in every run."""

_ELEMENTWISE_NAMES = """
Abs Add And Cast Ceil Celu Clip Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid
HardSwish Identity LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mul Neg Not Or PRelu Pow
Reciprocal Relu Round Selu Sigmoid Sign Softplus Softsign Sqrt Sub Sum Swish Tanh ThresholdedRelu
Where
"""
_ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())
_LARGEST = 1000
"""Nodes of a region; the search for one starts anew at each Transpose."""


class TransposeElimination(Pass):
    """Join Transposes that follow each other, and cancel those around elementwise operators.

    Needs the ranks of values, not their lengths, and so may run before shapes are known.
    """

    name = "transpose elimination"
    requires = frozenset({"topological order"})
    wanted_ops = frozenset({"Transpose"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes:
            patch = _join(node, graph) if is_standard(node, "Transpose") else None
            if patch is not None:
                yield patch
        hopeless: set[tuple[Node, _Order]] = set()
        for node in list(graph.nodes):
            order = _order(node) if node.graph is graph else None
            if order is None:
                continue
            for region in _regions(node, order, graph, hopeless):
                if region.gain > 0 and have_one_affinity((*region.nodes, *region.removed)):
                    yield _rewrite(region, graph)
                    break
                hopeless.update((inner, region.order) for inner in region.nodes)


def _join(node: Node, graph: Graph) -> GraphPatch | None:
    """Make one Transpose of two, or none if the second undoes the first."""
    first = made_by(node.inputs[0], "Transpose")
    if first is None or first.graph is not graph or not have_one_affinity((first, node)):
        return None
    inner, outer, source = _order(first), _order(node), first.inputs[0]
    if inner is None or outer is None or source is None:
        return None
    order = tuple(inner[axis] for axis in outer)
    old = node.outputs[0]
    patch = GraphPatch(f"join Transpose {first.name!r} and {node.name!r}").remove(node)
    if order == tuple(range(len(order))) and _may_stand_for(source, old, graph):
        return patch.replace(old, source)
    made = Value(old.name, old.type)
    joined = Node("Transpose", (source,), [made], {"perm": list(order)}, name=node.name)
    return patch.add(joined, before=node, stands_for=[first, node]).replace(old, made)


def _may_stand_for(source: Value, old: Value, graph: Graph) -> bool:
    """True if a value that is there can take over the name of one that a graph returns."""
    is_made_here = source.producer is not None and source.producer.graph is graph
    return not old.is_graph_output or (is_made_here and not source.is_graph_output)


class _Region(NamedTuple):
    """Nodes whose values ``order`` has made of what they could work on.

    ``added`` are values from outside that no Transpose makes, ``kept`` those that others use as
    they are; ``removed`` the Transposes that become needless.
    """

    order: _Order
    nodes: _Nodes
    added: tuple[Value, ...]
    kept: tuple[Value, ...]
    removed: tuple[Node, ...]

    @property
    def gain(self) -> int:
        return len(self.removed) - len(self.added) - len(self.kept)


def _regions(
    node: Node, order: _Order, graph: Graph, hopeless: set[tuple[Node, _Order]]
) -> Iterator[_Region]:
    """Try what a Transpose's input is computed from, then all that is connected to it."""
    start = node.inputs[0].producer if node.inputs[0] is not None else None
    wanted = _inverse(order)
    if start is None or (start, wanted) in hopeless or not _is_inside(start, graph, wanted):
        return
    for with_users in (False, True):
        nodes = _flood(start, graph, wanted, with_users=with_users)
        if nodes is not None:
            yield _bounded(nodes, wanted, graph)


def _flood(start: Node, graph: Graph, order: _Order, *, with_users: bool) -> _Nodes | None:
    """Collect connected elementwise nodes; None if they are too many."""
    found, waiting = {start: None}, [start]
    while waiting:
        node = waiting.pop()
        near = [value.producer for value in node.inputs if value is not None]
        if with_users:
            near += node.outputs[0].consumers
        for other in near:
            if other is not None and other not in found and _is_inside(other, graph, order):
                found[other] = None
                waiting.append(other)
        if len(found) > _LARGEST:
            return None
    return found


def _is_inside(node: Node, graph: Graph, order: _Order) -> bool:
    """True for an elementwise node whose computed values all have the order's rank."""
    if not is_standard(node, *_ELEMENTWISE) or node.graph is not graph or len(node.outputs) != 1:
        return False
    computed = [value for value in node.inputs if value is not None and not value.is_constant]
    constants = [value.constant for value in node.inputs if value is not None]
    has_rank = all(rank_of(value) == len(order) for value in (*computed, node.outputs[0]))
    is_low = all(array is None or array.ndim <= len(order) for array in constants)
    return bool(computed) and has_rank and is_low


def _bounded(nodes: _Nodes, order: _Order, graph: Graph) -> _Region:
    """Count what a region's borders cost and save."""
    added: dict[Value, None] = {}
    kept: dict[Value, None] = {}
    removed: _Nodes = {}
    for node in nodes:
        for value in node.inputs:
            if value is None or value.is_constant or value.producer in nodes:
                continue
            transpose = made_by(value, "Transpose")
            if transpose is None or _order(transpose) != order or _is_between(transpose, nodes):
                added[value] = None
            elif not value.is_graph_output and all(user in nodes for user, _ in value.uses):
                removed[transpose] = None
        outside = [user for user in node.outputs[0].consumers if user not in nodes]
        undoing = _undoing(outside, nodes, order, graph)
        removed.update(dict.fromkeys(undoing))
        if node.outputs[0].is_graph_output or len(undoing) < len(outside):
            kept[node.outputs[0]] = None
    return _Region(order, nodes, tuple(added), tuple(kept), tuple(removed))


def _undoing(users: Iterable[Node], nodes: _Nodes, order: _Order, graph: Graph) -> list[Node]:
    """List the Transposes of the inverse order; of those with a public name only one."""
    found: list[Node] = []
    for user in users:
        is_undoing = user.graph is graph and _order(user) == _inverse(order)
        if not is_undoing or _is_between(user, nodes):
            continue
        is_public = user.outputs[0].is_graph_output
        if not is_public or not any(other.outputs[0].is_graph_output for other in found):
            found.append(user)
    return found


def _is_between(transpose: Node, nodes: _Nodes) -> bool:
    """True for a Transpose that the region itself feeds, directly or through another one.

    If its order is its own inverse, it would count on both sides.
    """
    source = transpose.inputs[0]
    maker = None if source is None else source.producer
    users = transpose.outputs[0].consumers
    is_fed = maker in nodes and any(user in nodes for user in users)
    return is_fed or made_by(source, "Transpose") is not None


def _rewrite(region: _Region, graph: Graph) -> GraphPatch:
    """Make a region work on what is there before the Transposes, which go."""
    names = ", ".join(repr(node.name) for node in region.removed)
    patch = GraphPatch(f"cancel the Transposes {names}")
    order, inverse = region.order, _inverse(region.order)
    made: dict[Value, Value] = {}
    for node in (node for node in graph.nodes if node in region.nodes):
        inputs = [
            None if value is None else _before(patch, value, region, made, node)
            for value in node.inputs
        ]
        old = node.outputs[0]
        made[old] = Value(f"{old.name}_before", _permuted(old, inverse))
        copy = Node(node.op_type, inputs, [made[old]], node.attributes, name=node.name)
        patch.add(copy, before=node, stands_for=[node]).remove(node)
        if old in region.kept:
            value = Value(old.name, old.type)
            back = _transpose(made[old], value, order, f"{node.name}_Transpose")
            patch.add(back, before=node, stands_for=[node]).replace(old, value)
        for user in old.consumers:
            if user in region.removed:
                patch.replace(user.outputs[0], made[old])
    for node in region.removed:
        patch.remove(node)
    return patch


def _before(
    patch: GraphPatch, value: Value, region: _Region, made: dict[Value, Value], place: Node
) -> Value:
    """Return a value as it is before the region's Transposes; add what is not there yet."""
    if value in made:
        return made[value]
    inverse = _inverse(region.order)
    transpose = made_by(value, "Transpose")
    if value.constant is not None:
        made[value] = _constant_before(patch, value, value.constant, inverse)
    elif value in region.added or transpose is None or transpose.inputs[0] is None:
        made[value] = Value(f"{value.name}_before", _permuted(value, inverse))
        node = _transpose(value, made[value], inverse, f"{place.name}_Transpose")
        patch.add(node, before=place, stands_for=[place])
    else:
        made[value] = transpose.inputs[0]
    return made[value]


def _constant_before(patch: GraphPatch, value: Value, array: np.ndarray, inverse: _Order) -> Value:
    if array.size == 1:
        return value
    wide = array.reshape((1,) * (len(inverse) - array.ndim) + array.shape)
    moved = np.ascontiguousarray(wide.transpose(inverse))
    moved.flags.writeable = False
    kind = TensorType(DType.of(moved.dtype), moved.shape)
    made = Value(f"{value.name}_before", kind, moved)
    patch.add_constant(made)
    return made


def _transpose(source: Value, target: Value, order: _Order, name: str) -> Node:
    return Node("Transpose", (source,), [target], {"perm": list(order)}, name=name)


def _order(node: Node) -> _Order | None:
    """Read the order of a standard Transpose; None for other nodes, or if it is not known."""
    if not is_standard(node, "Transpose"):
        return None
    if "perm" in node.attributes:
        return tuple(int(axis) for axis in node.attributes["perm"])
    rank = rank_of(node.inputs[0])
    return None if rank is None else tuple(reversed(range(rank)))


def _inverse(order: Sequence[int]) -> _Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _permuted(value: Value, order: _Order) -> TensorType | None:
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    shape = value.type.shape
    return TensorType(value.type.dtype, tuple(shape[axis] for axis in order))
