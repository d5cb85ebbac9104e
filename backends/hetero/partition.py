"""The partition as plain data: what ``explain``, the diagrams, the command line and tests read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...runtime.graph import Model, ValueType
from .policies.policy import Expected
from .subgraphs.affinity import Placement
from .subgraphs.cutting import CutModel

__all__ = ["Cut", "NodeEdge", "Partition", "PartitionSubgraph", "PlacedNode", "make_partition"]


class PlacedNode(NamedTuple):
    """A node of the executed graph; ``original_nodes`` are the nodes of the file in it."""

    name: str
    op: str
    original_nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class PartitionSubgraph:
    """A connected piece on one device; ``index`` counts in order of execution."""

    index: int
    device: str
    nodes: tuple[PlacedNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    needs: tuple[int, ...]
    """The subgraphs that must have run before."""


class Cut(NamedTuple):
    """A value on its way from one subgraph to another; ``bytes`` None: the type does not say."""

    value: str
    type: ValueType | None
    source: int
    target: int
    bytes: int | None


class NodeEdge(NamedTuple):
    """A value on its way from one node to another, inside a subgraph or across a cut."""

    value: str
    source: str
    target: str


@dataclass(frozen=True)
class Partition:
    """How a model is spread over devices.

    ``removed_nodes`` are those nodes of the file that no node stands for any more: passes have
    computed them ahead, or found that nothing needs them.
    """

    model: str
    devices: tuple[str, ...]
    subgraphs: tuple[PartitionSubgraph, ...]
    cuts: tuple[Cut, ...]
    edges: tuple[NodeEdge, ...]
    removed_nodes: tuple[str, ...]
    expected: Expected | None = None
    """What the policy expects that has placed the nodes; None: they went by the list's order."""
    judge: Callable[[], Expected | None] | None = field(default=None, compare=False, repr=False)
    """Estimates what the cuts of the list's order cost, when somebody asks."""

    def expectation(self) -> Expected | None:
        """Return what is expected of it; estimated now, where no policy has weighed the cuts."""
        if self.expected is None and self.judge is not None:
            return self.judge()
        return self.expected

    @property
    def crossing_value_count(self) -> int:
        """How many values cross, each counted once."""
        return len({cut.value for cut in self.cuts})

    @property
    def node_count(self) -> int:
        """How many nodes are executed."""
        return sum(len(subgraph.nodes) for subgraph in self.subgraphs)


def make_partition(
    model: Model,
    cut: CutModel,
    placements: Mapping[str, Placement],
    removed_nodes: Sequence[str],
    devices: Sequence[str],
    expected: Expected | None = None,
) -> Partition:
    """Describe a cut model; placements are by the names of the nodes of the file. Pure."""
    subgraphs = []
    for index, (piece, needs) in enumerate(zip(cut.subgraphs, cut.needs(), strict=True)):
        nodes = tuple(
            PlacedNode(node.name, node.op, node.fused_from, _reason(node.fused_from, placements))
            for node in piece.model.graph.nodes
        )
        inputs = tuple(value.name for value in piece.model.inputs)
        outputs = tuple(value.name for value in piece.model.outputs)
        subgraphs.append(
            PartitionSubgraph(index, piece.device, nodes, inputs, outputs, tuple(needs))
        )
    cuts = tuple(
        Cut(link.value, link.type, link.source.subgraph, target.subgraph, link.bytes)
        for link in cut.links
        for target in link.targets
    )
    edges = tuple(
        NodeEdge(value.name, value.producer.name, node.name)
        for node in model.graph.nodes
        for value in node.dependencies()
        if value.producer is not None and not value.is_constant
    )
    return Partition(
        model.name, tuple(devices), tuple(subgraphs), cuts, edges, tuple(removed_nodes), expected
    )


def _reason(origins: Sequence[str], placements: Mapping[str, Placement]) -> str:
    reasons = dict.fromkeys(placements[name].reason for name in origins if name in placements)
    return "; ".join(reasons)
