"""A device's answers about rewritten nodes, in terms of the nodes of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...errors import GraphError
from ..graph import Graph, Node

__all__ = ["Support", "SupportMap", "map_to_original"]


class Support(NamedTuple):
    """Whether a device runs a node; ``reason`` says why not, or, at will, on what condition.

    ``implementation``: what will compute it, where the device says that before it compiles.
    """

    supported: bool
    reason: str = ""
    implementation: str = ""


SupportMap = dict[str, Support]
"""Name of a node -> the device's answer."""


def map_to_original(
    original_node_names: Iterable[str],
    transformed_graph: Graph,
    removed_names: Iterable[str],
    verdict: Mapping[str, Support],
) -> SupportMap:
    """Answer for each node of the file, from the answers for the nodes of the rewritten graph.

    A node is supported if every node that stands for it is: one fused into a supported and into an
    unsupported node is not, with the reason of the latter. The first that tells an implementation
    tells it for the node of the file. A node that a pass removed (``PassReport.removed_names``) is
    supported. ``verdict`` is by the names of the rewritten main
    graph; a node that it leaves out is not supported. Raises GraphError for a name that neither a
    node nor ``removed_names`` accounts for. Pure; O(nodes).
    """
    rewritten: dict[str, list[Node]] = {}
    for node in transformed_graph.nodes:
        for name in node.fused_from:
            rewritten.setdefault(name, []).append(node)
    removed = set(removed_names)
    answers: SupportMap = {}
    for name in original_node_names:
        if name not in rewritten and name not in removed:
            raise GraphError(
                f"node {name!r} is not in the rewritten graph {transformed_graph.name!r} and no "
                f"pass reported that it removed it; a rewrite went past GraphPatch"
            )
        answers[name] = _answer(name, rewritten.get(name, []), verdict)
    return answers


_MISSING = Support(False, "the device gave no answer for it")
_SUPPORTED = Support(True)


def _answer(name: str, rewritten: Iterable[Node], verdict: Mapping[str, Support]) -> Support:
    implementation = ""
    for node in rewritten:
        answer = verdict.get(node.name, _MISSING)
        if not answer.supported and node.name != name:
            return Support(False, f"{answer.reason} (it is part of {node.op} {node.name!r})")
        if not answer.supported:
            return answer
        implementation = implementation or answer.implementation
    return Support(True, "", implementation) if implementation else _SUPPORTED
