"""What must hold before a patch is applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ....errors import GraphError
from ...graph import Graph, Node, Value
from ...graph.traversal import all_nodes

__all__ = ["Patch", "check_patch", "have_one_affinity"]


class NewNode(Protocol):
    """A node to add, its place, and the nodes that it stands for."""

    @property
    def node(self) -> Node: ...
    @property
    def before(self) -> Node | None: ...
    @property
    def stands_for(self) -> Sequence[Node] | None: ...


class Patch(Protocol):
    """What a patch is going to do; see ``GraphPatch``."""

    @property
    def additions(self) -> Sequence[NewNode]: ...
    @property
    def replaced(self) -> Mapping[Value, Value]: ...
    @property
    def removed(self) -> Mapping[Node, Node | None]: ...
    @property
    def constants(self) -> Sequence[Value]: ...
    @property
    def dropped(self) -> Sequence[Value]: ...


def have_one_affinity(nodes: Iterable[Node]) -> bool:
    """True if the nodes are all meant for the same device, or none of them for any."""
    return len({node.affinity for node in nodes}) <= 1


def check_patch(patch: Patch, graph: Graph, outer: Sequence[Graph] = ()) -> None:
    """Raise GraphError if the patch does not fit the graph. O(size of the patch).

    Checked: nodes and values belong to the graph (values also to the graphs around it); nothing
    uses a removed output or a dropped constant afterwards; outputs of the graph can keep their
    names; nodes of different affinity do not become one. Order is left to ``check_graph``.
    """
    _check_nodes(patch, graph)
    scopes = (graph, *outer)
    made = {value for addition in patch.additions for value in addition.node.outputs}
    made.update(patch.constants)
    gone = {value for node in patch.removed for value in node.outputs} | set(patch.dropped)
    for addition in patch.additions:
        for value in addition.node.dependencies():
            if value not in made and (value in gone or not _is_visible(value, scopes)):
                raise GraphError(f"new node {addition.node.name!r} uses {_stranger(value, graph)}")
    for value in patch.dropped:
        if graph.initializers.get(value.name) is not value:
            raise GraphError(f"{value.name!r} is not a constant of graph {graph.name!r}")
    for old, new in patch.replaced.items():
        if not _is_visible(old, (graph,)):
            raise GraphError(f"cannot replace {_stranger(old, graph)}")
        is_lost = new in gone or new in patch.replaced
        if new not in made and (is_lost or not _is_visible(new, scopes)):
            raise GraphError(f"cannot replace {old.name!r} by {_stranger(new, graph)}")
    _check_nothing_is_missed(patch, gone)
    _check_public_names(patch, graph, made)
    _check_affinity(patch)


def _check_nodes(patch: Patch, graph: Graph) -> None:
    for node in patch.removed:
        if node.graph is not graph:
            raise GraphError(f"node {node.name!r} is to be removed and is not in {graph.name!r}")
    for into in patch.removed.values():
        if into is not None and (into.graph is not graph or into in patch.removed):
            raise GraphError(f"node {into.name!r} is to be merged into and does not stay")
    for addition in patch.additions:
        if addition.node.graph is not None:
            raise GraphError(f"new node {addition.node.name!r} is already in a graph")
        if addition.before is not None and addition.before.graph is not graph:
            raise GraphError(
                f"new node {addition.node.name!r} has its place before {addition.before.name!r}, "
                f"which is not in graph {graph.name!r}"
            )
    for value in patch.constants:
        if value.constant is None or value.producer is not None:
            raise GraphError(f"new constant {value.name!r} has no content, or a node makes it")


def _check_nothing_is_missed(patch: Patch, gone: set[Value]) -> None:
    inside = {
        found for node in patch.removed for body in node.bodies() for found in all_nodes(body)
    }
    for value in gone:
        if value in patch.replaced:
            continue
        if value.is_graph_output:
            raise GraphError(f"{value.name!r} would go, and a graph returns it; replace it")
        for user, _ in value.uses:
            if user not in patch.removed and user not in inside:
                raise GraphError(
                    f"{value.name!r} would go, and node {user.name!r} uses it; replace it"
                )


def _check_public_names(patch: Patch, graph: Graph, made: set[Value]) -> None:
    if not any(old.is_graph_output for old in patch.replaced):
        return
    outputs = set(graph.outputs)
    heirs: set[Value] = set()
    for old, new in patch.replaced.items():
        if old not in outputs:
            continue
        where = f"output {old.name!r} of graph {graph.name!r}"
        if old.producer is None:
            raise GraphError(f"{where} is an input or a constant and cannot be replaced")
        belongs = new in made or (new.producer is not None and new.producer.graph is graph)
        if not belongs or new in outputs or new in heirs:
            raise GraphError(
                f"{where} would lose its name: {new.name!r} is not made by a node of this graph, "
                f"or is an output already; keep the node that makes {old.name!r}"
            )
        heirs.add(new)


def _check_affinity(patch: Patch) -> None:
    for addition in patch.additions:
        origins = patch.removed if addition.stands_for is None else addition.stands_for
        wanted = {node.affinity for node in origins}
        if wanted and addition.node.affinity is not None:
            wanted.add(addition.node.affinity)
        if len(wanted) > 1:
            raise GraphError(
                f"new node {addition.node.name!r} would stand for nodes of different affinity: "
                f"{sorted(str(device) for device in wanted)}"
            )
    for node, into in patch.removed.items():
        if into is not None and node.affinity != into.affinity:
            raise GraphError(
                f"nodes {node.name!r} and {into.name!r} have different affinities and cannot be "
                f"merged: {node.affinity} and {into.affinity}"
            )


def _is_visible(value: Value, scopes: Sequence[Graph]) -> bool:
    if value.producer is not None:
        return any(value.producer.graph is scope for scope in scopes)
    return any(
        scope.initializers.get(value.name) is value or value in scope.inputs for scope in scopes
    )


def _stranger(value: Value, graph: Graph) -> str:
    return f"{value.name!r}, which is not in graph {graph.name!r} or does not stay there"
