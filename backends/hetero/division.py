"""A model cut for its devices, before they compile it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...runtime.graph import Model
from .diagrams.diagram import affinity_svg
from .diagrams.dot import subgraphs_dot
from .explain import explain_partition
from .partition import Partition
from .subgraphs.cutting import CutModel, node_edges
from .subgraphs.selection_trace import trace_selection

__all__ = ["Division"]


@dataclass(frozen=True)
class Division:
    """``model`` is the whole, after the passes; ``cut`` has its pieces."""

    model: Model
    cut: CutModel
    partition: Partition

    def explain(self) -> str:
        """Return which node runs where and why, and what crosses."""
        return explain_partition(self.partition)

    def selection_trace(self) -> str:
        """Return how the subgraphs were selected, step by step, as Markdown; it is long."""
        nodes = self.model.graph.nodes
        affinity = {node.name: str(node.affinity) for node in nodes}
        return trace_selection(
            list(affinity), node_edges(self.model.graph), affinity, self.partition.devices
        )

    def diagram(self, language: Literal["dot", "svg"]) -> str:
        """Draw every node in the colour of its device, and what crosses with its size."""
        return (subgraphs_dot if language == "dot" else affinity_svg)(self.partition)

    def subgraph_models(self) -> list[tuple[str, Model]]:
        """Return each subgraph's device and a copy of its model, in order of execution."""
        return [(piece.device, piece.model.copy()) for piece in self.cut.subgraphs]
