"""Operators of ONNX that a device has no kernels for, written with those that it has."""

from __future__ import annotations

from collections.abc import Iterator

from ...decompositions import Composition, CompositionError
from ...decompositions.standard import STANDARD
from ...graph import Graph, Node
from ...type_inference import ShapeContent
from ...type_inference.made_types import types_of_made
from ..decomposing import patch_of
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard
from ..rewriting.pass_base import Pass

__all__ = ["StandardOperators"]


class StandardOperators(Pass):
    """Write losses and mean-variance normalisations as what they are made of.

    A node whose types do not tell how is left as it is, and so is a user's.
    """

    name = "standard operators"
    requires = frozenset({"topological order"})
    wanted_ops = frozenset(STANDARD)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            is_wanted = is_standard(node, *STANDARD) and node.user_kernel is None
            patch = _patch(node) if is_wanted and node.graph is graph else None
            if patch is not None:
                yield patch


def _patch(node: Node) -> GraphPatch | None:
    made = Composition(node, node.inputs, types_of_made(ShapeContent()))
    try:
        outputs = [*STANDARD[node.op_type](made), None][: len(node.outputs)]
        return patch_of(made, outputs)
    except CompositionError:
        made.discard()
        return None
    except BaseException:
        made.discard()
        raise
