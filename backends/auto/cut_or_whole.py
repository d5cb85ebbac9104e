"""Whether a model that CPU refuses in part is cut, or goes whole to a slower device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ...runtime.costs import NodeCost, node_cost
from ...runtime.devices.plugin import CoreHandle, Division
from ...runtime.graph import Model
from ...runtime.passes import SupportMap
from .choose import SPEEDS, Piece, expected_s

__all__ = ["CUT_ON", "CutChoice", "choose_cut"]

CUT_ON = "CPU"
BETTER_BY = 1.2
"""How much faster a cut model has to be, because the numbers are rough."""


class PlacedNode(Protocol):
    """A node of a piece."""

    original_nodes: tuple[str, ...]


class Subgraph(Protocol):
    """A piece of a model."""

    device: str
    nodes: Sequence[PlacedNode]


class Cut(Protocol):
    """A value that crosses; ``bytes`` None: its type does not say."""

    bytes: int | None


class Partition(Protocol):
    """What HETERO says of a model that it has cut."""

    subgraphs: Sequence[Subgraph]
    cuts: Sequence[Cut]


class PlannedCore(Protocol):
    """What is asked of the Core: to cut, and to compile nothing."""

    def divide_network(self, model: Any, device: str, config: Mapping[Any, Any]) -> Division:
        """Cut a model as a device would load it."""


@dataclass(frozen=True)
class CutChoice:
    """Whether a model is to be cut: on which device, with which properties, and why."""

    device: str
    config: Mapping[str, Any]
    reason: str
    is_cut: bool = True

    def arguments(self, model: Model) -> tuple[Model, str, Mapping[str, Any]]:
        """Return those of load_network."""
        return model, self.device, self.config


def choose_cut(
    core: CoreHandle,
    model: Model,
    whole: str,
    answers: Mapping[str, SupportMap],
    config_of: Callable[[str], Mapping[str, Any]],
) -> CutChoice | None:
    """Weigh a cut model against all of it on ``whole``; None: there is nothing to weigh."""
    support = answers.get(CUT_ON)
    if support is None or whole not in SPEEDS or whole == CUT_ON:
        return None
    if not any(answer.supported for answer in support.values()):
        return None
    costs = {node: node_cost(node, {}) for node in model.graph.nodes}
    by_name = {name: cost for node, cost in costs.items() for name in node.fused_from}
    device = f"HETERO:{CUT_ON},{whole}"
    config = config_of(device)
    division = cast("PlannedCore", core).divide_network(model, device, config)
    partition = cast("Partition", cast("Any", division).partition)
    pieces = [
        Piece(
            subgraph.device,
            [_sum(by_name.get(name) for name in node.original_nodes) for node in subgraph.nodes],
        )
        for subgraph in partition.subgraphs
    ]
    cut_s = expected_s(pieces, [cut.bytes or 0 for cut in partition.cuts])
    whole_s = expected_s([Piece(whole, list(costs.values()))])
    is_cut = cut_s * BETTER_BY <= whole_s
    reason = (
        f"{device} is expected to take {1000 * cut_s:.3g} ms a request, and {whole} alone "
        f"{1000 * whole_s:.3g} ms"
    )
    if not is_cut:
        reason = f"not cut, as {reason}, and a cut has to be {BETTER_BY} times as fast"
    return CutChoice(device, config, reason, is_cut)


def _sum(costs: Iterable[NodeCost | None]) -> NodeCost:
    """Add up what the nodes of the file cost that one node stands for."""
    known = [cost for cost in costs if cost is not None]
    return NodeCost(sum(cost.flop for cost in known), sum(cost.bytes for cost in known))
