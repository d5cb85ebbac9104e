"""One rewrite of a graph, collected first and then applied as a whole.

Nothing happens to the graph until ``apply``, which first checks everything (``patch_check.py``) and
then cannot fail. Two things are looked after here, so that no pass can forget them. *Origins*: new
nodes stand for the nodes that they replace and inherit ``fused_from``, and affinity. *Public
names*: what replaces an output of the graph takes over its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np

from ....errors import GraphError
from ...graph import Dim, DType, Graph, Node, TensorType, Value, ValueType
from ...graph.traversal import all_nodes
from .name_table import NameTable
from .patch_check import check_patch

__all__ = ["Addition", "GraphPatch"]


class Addition(NamedTuple):
    """A new node, its place, and the nodes that it stands for; None: all that the patch removes."""

    node: Node
    before: Node | None
    stands_for: tuple[Node, ...] | None


class GraphPatch:
    """A rewrite of one graph: nodes and constants to add, values to replace, nodes to remove.

    Every method but ``apply`` and ``discard`` only takes note and returns the patch, so that calls
    chain. The order of the calls does not matter, but for the nodes that are added. For one use.
    """

    def __init__(self, description: str) -> None:
        self.description = description
        self.additions: list[Addition] = []
        self.replaced: dict[Value, Value] = {}
        self.removed: dict[Node, Node | None] = {}
        """Node to go -> the node that it is merged into, or None."""
        self.constants: list[Value] = []
        self.dropped: list[Value] = []

    def add(
        self, node: Node, before: Node | None = None, stands_for: Iterable[Node] | None = None
    ) -> Self:
        """Add a node that is in no graph yet; its name and its outputs' get a number if taken.

        ``before`` may be a node that the patch removes; None puts it before the first of those, or
        at the end. ``stands_for`` are the nodes whose names and affinity it inherits, by default
        all that the patch removes. It must not share a body with a node that is removed.
        """
        origin = None if stands_for is None else tuple(stands_for)
        self.additions.append(Addition(node, before, origin))
        return self

    def replace(self, old: Value, new: Value) -> Self:
        """Make everything use ``new`` instead of ``old``, except the nodes that this patch adds.

        If ``old`` is an output of the graph, ``new`` takes over its name; so ``new`` must be made
        by a node of this graph, and not be an output already.
        """
        self.replaced[old] = new
        return self

    def remove(self, node: Node) -> Self:
        """Remove a node; whatever uses its outputs must be removed or replaced, too."""
        self.removed[node] = None
        return self

    def merge(self, node: Node, into: Node) -> Self:
        """Remove a node in favour of an equal one, which from now on stands for both."""
        self.removed[node] = into
        for old, new in zip(node.outputs, into.outputs, strict=True):
            self.replaced[old] = new
        return self

    def set_constant(self, value: Value, array: np.ndarray) -> Self:
        """Put a constant in the place and under the name of an output of a node that is removed.

        The array is kept and must not be written any more.
        """
        content = Value(value.name, TensorType(DType.of(array.dtype), array.shape), array)
        return self.add_constant(content).replace(value, content)

    def add_constant(self, value: Value) -> Self:
        """Add a constant for the new nodes to use; its name gets a number if it is taken."""
        self.constants.append(value)
        return self

    def drop_constant(self, value: Value) -> Self:
        """Forget a constant of this graph that nothing uses."""
        self.dropped.append(value)
        return self

    def apply(
        self, graph: Graph, names: NameTable | None = None, outer: Sequence[Graph] = ()
    ) -> tuple[str, ...]:
        """Check the patch, apply it, and list the original node names that are gone with it.

        ``names`` are those of the whole model, and are kept up to date; without them they are
        counted, in O(V). ``outer`` are the graphs around a body, from the nearest on. Raises
        GraphError before anything has changed.
        """
        try:
            check_patch(self, graph, outer)
        except GraphError:
            self.discard()
            raise
        names = NameTable(graph) if names is None else names
        gone = self._settle_origins()
        public = self._public_names(graph)
        self._rename(public, names)
        self._link(graph, public, names)
        own = {addition.node for addition in self.additions}
        for old, new in self.replaced.items():
            _substitute(graph, old, new, own)
        for node in self.removed:
            graph.unlink(node)
        for node in self.removed:
            node.detach()
        for value in self.dropped:
            del graph.initializers[value.name]
        return gone

    def discard(self) -> None:
        """Drop the patch: its new nodes no longer use the values of the graph."""
        for addition in self.additions:
            addition.node.detach()

    def _settle_origins(self) -> tuple[str, ...]:
        inherited: dict[str, None] = {}
        for addition in self.additions:
            origins = self.removed if addition.stands_for is None else addition.stands_for
            node = addition.node
            node.fused_from = _origin_names(origins)
            inherited.update(dict.fromkeys(node.fused_from))
            affinity = next((origin.affinity for origin in origins), None)
            if affinity is not None:
                node.affinity = affinity
        for node, into in self.removed.items():
            if into is not None:
                fresh = [name for name in node.fused_from if name not in into.fused_from]
                into.fused_from += tuple(fresh)
                inherited.update(dict.fromkeys(node.fused_from))
        inside = [
            found for node in self.removed for body in node.bodies() for found in all_nodes(body)
        ]
        return tuple(
            name for name in _origin_names([*self.removed, *inside]) if name not in inherited
        )

    def _public_names(self, graph: Graph) -> dict[Value, str]:
        if not any(old.is_graph_output for old in self.replaced):
            return {}
        outputs = set(graph.outputs)
        return {new: old.name for old, new in self.replaced.items() if old in outputs}

    def _rename(self, public: dict[Value, str], names: NameTable) -> None:
        """Release the names that become free; a public name stays taken, by its new owner."""
        kept = set(public.values())
        for node in self.removed:
            names.release_node(node)
            for value in node.outputs:
                if value.name not in kept:
                    names.release_value(value.name)
        for value in self.dropped:
            names.release_value(value.name)
        for old in self.replaced:
            if old.name in kept and old.producer not in self.removed:
                old.name = names.claim_value(old.name)
        new_nodes = {addition.node for addition in self.additions}
        for value, name in public.items():
            if value.producer is not None and value.producer not in new_nodes:
                names.release_value(value.name)
            value.name = name

    def _link(self, graph: Graph, public: dict[Value, str], names: NameTable) -> None:
        for value in self.constants:
            if value not in public:
                value.name = names.claim_value(value.name)
            graph.add_initializer(value)
        first = next(iter(self.removed), None)
        for addition in self.additions:
            node, place = addition.node, addition.before or first
            node.name = names.claim_node(node.name)
            names.claim_bodies(node)
            for value in node.outputs:
                if value not in public:
                    value.name = names.claim_value(value.name)
            if place is None:
                graph.append(node)
            else:
                graph.insert_before(place, node)

    def __repr__(self) -> str:
        return f"<GraphPatch {self.description!r}>"


def _substitute(graph: Graph, old: Value, new: Value, own: set[Node]) -> None:
    new.type = _merged_type(old.type, new.type)
    for node, index in list(old.uses):
        if node not in own:
            node.replace_input(index, new)
    if not old.is_graph_output:
        return
    bodies = (body for node in all_nodes(graph) for body in node.bodies())
    for scope in (graph, *bodies):
        if any(value is old for value in scope.outputs):
            scope.outputs = [new if value is old else value for value in scope.outputs]


def _origin_names(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for node in nodes for name in node.fused_from))


def _merged_type(old: ValueType | None, new: ValueType | None) -> ValueType | None:
    """Combine what is known of one value: lengths first, then the old type's symbols."""
    if new is None or old is None:
        return old if new is None else new
    if not isinstance(old, TensorType) or not isinstance(new, TensorType) or old.shape is None:
        return new
    if new.shape is None:
        return TensorType(new.dtype, old.shape)
    if len(old.shape) != len(new.shape):
        return new
    pairs = zip(old.shape, new.shape, strict=True)
    return TensorType(new.dtype, tuple(_merged_dim(*pair) for pair in pairs))


def _merged_dim(old: Dim, new: Dim) -> Dim:
    return new if isinstance(new, int) or old is None else old
