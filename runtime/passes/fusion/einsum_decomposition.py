"""Einsum, written with the operators that devices have kernels for."""

from __future__ import annotations

from collections.abc import Iterator

from ...decompositions import Composition, CompositionError
from ...decompositions.einsum import einsum
from ...graph import DType, Graph, Node
from ...type_inference import ShapeContent
from ...type_inference.made_types import types_of_made
from ..decomposing import patch_of
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import dtype_of
from ..rewriting.pass_base import Pass

__all__ = ["EinsumDecomposition"]

_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64})


class EinsumDecomposition(Pass):
    """Write Einsum with Transpose, MatMul, Mul and ReduceSum.

    For floating types and operands of known rank; a node that names an axis twice in one term, or
    sums over ``...``, is left as it is.
    """

    name = "einsum decomposition"
    requires = frozenset({"topological order"})
    wanted_ops = frozenset({"Einsum"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes_of("Einsum"):
            if node.user_kernel is None and dtype_of(node.outputs[0]) in _FLOATS:
                patch = _patch(node)
                if patch is not None:
                    yield patch


def _patch(node: Node) -> GraphPatch | None:
    made = Composition(node, node.inputs, types_of_made(ShapeContent()))
    try:
        return patch_of(made, einsum(made))
    except CompositionError:
        made.discard()
        return None
    except BaseException:
        made.discard()
        raise
