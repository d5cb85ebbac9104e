"""Operators of onnxruntime's own domain, rewritten to those that every device knows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..decompositions import Composition, CompositionError, compose, find_decomposition
from ..graph import Graph, Node, Value
from ..type_inference import ShapeContent
from ..type_inference.made_types import types_of_made
from .rewriting.graph_patch import GraphPatch
from .rewriting.pass_base import Pass

__all__ = ["Decomposing", "find_decline", "patch_of"]


class Decomposing(Pass):
    """Write nodes that have a decomposition with the operators that they are made of.

    What cannot be written so, what a user's kernel computes and the operators in ``keep_ops``
    (``domain::type``) are left as they are. ``whole_ops`` are operators of ONNX that the device has
    kernels for, and that others need not be written without.
    """

    name = "decomposing"

    def __init__(self, *, keep_ops: Collection[str] = (), whole_ops: Collection[str] = ()) -> None:
        self._keep_ops, self._whole_ops = frozenset(keep_ops), frozenset(whole_ops)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or find_decomposition(node) is None:
                continue
            if node.user_kernel is not None or node.op in self._keep_ops:
                continue
            patch = _patch(node, self._whole_ops)
            if patch is not None:
                yield patch


def _patch(node: Node, whole_ops: Collection[str]) -> GraphPatch | None:
    try:
        made, outputs = compose(node, node.inputs, types_of_made(ShapeContent()), whole_ops)
    except CompositionError:
        return None
    return patch_of(made, outputs)


def find_decline(node: Node) -> str | None:
    """Return why a node's decomposition leaves it as it is; None if it does not, or is none."""
    if find_decomposition(node) is None:
        return None
    try:
        made, _ = compose(node, node.inputs, types_of_made(ShapeContent()))
    except CompositionError as error:
        return str(error)
    made.discard()
    return None


def patch_of(made: Composition, outputs: Sequence[Value | None]) -> GraphPatch:
    """Return the rewrite of a composition's node; ``outputs`` stand for the node's, in order."""
    node = made.node
    patch = GraphPatch(f"write {node.op} {node.name!r} as what it means").remove(node)
    for constant in made.constants:
        patch.add_constant(constant)
    for inner in made.nodes:
        patch.add(inner, node)
    for old, new in zip(node.outputs, outputs, strict=True):
        if new is not None and (old.uses or old.is_graph_output):
            new.name = old.name
            patch.replace(old, new)
    return patch
