"""Remove nodes that give back what they are given."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...graph import Graph, Node
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.pass_base import Pass
from .no_op_rules import NO_OP_RULES, is_no_op

__all__ = ["IdentityElimination"]


class IdentityElimination(Pass):
    """Remove Identity and every node of which types and constants prove that it changes nothing.

    Outputs of a graph keep their names, and inputs are never returned as they are: if the node
    makes an output of the graph (or of a body), it goes only if its input is made by another node
    of the same graph and is not itself an output; that value then takes over the name. So an input,
    a constant, a value of the graph around a body, or a value returned twice, keeps its Identity.
    The operators in ``keep_ops`` are left as they are.
    """

    name = "identity elimination"
    wanted_ops = frozenset(NO_OP_RULES)
    cleans = True

    def __init__(self, *, keep_ops: Collection[str] = ()) -> None:
        self._keep_ops = frozenset(keep_ops)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes:
            if is_no_op(node) and node.op not in self._keep_ops and _may_go(node, graph):
                value = node.inputs[0]
                assert value is not None  # is_no_op has looked at it
                yield (
                    GraphPatch(f"skip {node.op} {node.name!r}")
                    .replace(node.outputs[0], value)
                    .remove(node)
                )


def _may_go(node: Node, graph: Graph) -> bool:
    if not node.outputs[0].is_graph_output:
        return True
    value = node.inputs[0]
    if value is None or value.producer is None or value.is_graph_output:
        return False
    return value.producer.graph is graph
