"""Whether a model that CPU has no compiled code for in part is cut, or goes whole to one device.

That part is what CPU refuses, and what it leaves to numpy and a device beside it is quicker at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ...runtime.costs import NUMPY, NodeCost, node_cost, numpy_s, supposed_shapes
from ...runtime.devices.plugin import CoreHandle, Division
from ...runtime.graph import Model, Node
from ...runtime.passes import SupportMap
from .choose import BY_NUMPY, HOP_S, SPEEDS, Piece, expected_s

__all__ = ["CUT_ON", "CutChoice", "Prices", "weigh"]

CUT_ON = "CPU"
BETTER_BY = 1.2
"""How much faster a cut model has to be, because the numbers are rough."""
CLEARLY_BETTER_BY = 1.3
"""How much faster a model has to be elsewhere that CPU takes whole, and has no hand-over for."""
AFFINITY = "AFFINITY"
"""What HETERO calls the property that gives nodes to devices."""


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
    """Whether a model goes to a device, or cut to two: with which properties, and why."""

    device: str
    config: Mapping[str, Any]
    is_cut: bool
    is_taken: bool
    reason: str


@dataclass(frozen=True)
class _Price:
    node: Node
    cost: NodeCost
    numpy_s: float
    """0 for one that CPU has code for, or refuses."""

    def gain_s(self, other: str) -> float:
        """Return what a device saves that has code for the node."""
        if not self.numpy_s or other in BY_NUMPY:
            return 0.0
        return self.numpy_s - SPEEDS[other].node_s(self.cost)


class Prices:
    """What the nodes of a model cost, by CPU's answers and lengths that are supposed. Pure."""

    def __init__(self, model: Model, support: SupportMap) -> None:
        shapes = supposed_shapes(model.graph)
        left = {name for name, answer in support.items() if answer.implementation == NUMPY}
        self._prices = [_priced(node, node_cost(node, shapes), left) for node in model.graph.nodes]
        self._by_name = {name: item for item in self._prices for name in item.node.fused_from}

    def whole_s(self, device: str) -> float:
        """Suppose what a run takes on one device."""
        return expected_s([_piece(device, self._prices)])

    def least_s(self, other: str) -> float:
        """Suppose what a run takes with CPU at the least if the other device has what it gains by.

        As if nothing else crossed than what one hand-over brings.
        """
        moved = [item for item in self._prices if item.gain_s(other) > 0]
        if not moved:
            return self.whole_s(CUT_ON)
        rest = [item for item in self._prices if item.gain_s(other) <= 0]
        pieces = [_piece(CUT_ON, rest)] if rest else []
        return expected_s([*pieces, _piece(other, moved)])

    def moved(self, other: str) -> dict[str, str]:
        """Name the nodes that are worth a way to the other device and back, with that device."""
        return {
            name: other
            for item in self._prices
            if item.gain_s(other) > 2 * HOP_S
            for name in item.node.fused_from
        }

    def cut_s(self, partition: Partition) -> float:
        """Suppose what a run takes cut as HETERO would cut it."""
        pieces = [
            _piece(
                subgraph.device,
                dict.fromkeys(
                    self._by_name[name]
                    for node in subgraph.nodes
                    for name in node.original_nodes
                    if name in self._by_name
                ),
            )
            for subgraph in partition.subgraphs
        ]
        return expected_s(pieces, [cut.bytes or 0 for cut in partition.cuts])


ConfigOf = Callable[[str, Sequence[str]], Mapping[str, Any]]
"""Properties of a device, and of one that is made of others."""


def weigh(
    core: CoreHandle,
    model: Model,
    first: str,
    answers: Mapping[str, SupportMap],
    others: Callable[[], Iterable[str]],
    takes: Callable[[str], bool],
    config_of: ConfigOf,
) -> CutChoice | None:
    """Decide whether a model goes elsewhere than to ``first``, which takes it; None: it does not.

    ``others`` are devices of the processor with compiled code; one is asked whether it ``takes``
    the model only if it may be clearly quicker.
    """
    if first != CUT_ON:
        return _cut_or_whole(core, model, first, answers, config_of)
    if not any(answer.implementation == NUMPY for answer in answers[first].values()):
        return None
    prices = Prices(model, answers[first])
    for other in others():
        least_s = min(prices.whole_s(other), prices.least_s(other))
        if least_s * CLEARLY_BETTER_BY <= prices.whole_s(CUT_ON) and takes(other):
            return _here_or_there(core, model, prices, other, config_of)
    return None


def _cut_or_whole(
    core: CoreHandle,
    model: Model,
    whole: str,
    answers: Mapping[str, SupportMap],
    config_of: ConfigOf,
) -> CutChoice | None:
    """Weigh a model that CPU refuses in part, cut, against all of it on ``whole``."""
    support = answers.get(CUT_ON)
    if support is None or whole not in SPEEDS:
        return None
    if not any(answer.supported for answer in support.values()):
        return None
    prices = Prices(model, support)
    device, config, cut_s = _divided(core, model, prices, whole, config_of)
    whole_s = prices.whole_s(whole)
    is_cut = cut_s * BETTER_BY <= whole_s
    reason = f"{_expects(device, cut_s)}, and {_alone(whole, whole_s)}"
    if not is_cut:
        reason = f"not cut, as {reason}, and a cut has to be {BETTER_BY} times as fast"
    return CutChoice(device, config, True, is_cut, reason)


def _here_or_there(
    core: CoreHandle, model: Model, prices: Prices, other: str, config_of: ConfigOf
) -> CutChoice:
    """Weigh all of a model on CPU against another device that takes it, whole or beside CPU."""
    here_s, other_s = prices.whole_s(CUT_ON), prices.whole_s(other)
    device, config, least_s, is_cut = other, config_of(other, ()), other_s, False
    if prices.moved(other) and prices.least_s(other) * BETTER_BY <= other_s:
        divided, given, cut_s = _divided(core, model, prices, other, config_of)
        is_cut = cut_s * BETTER_BY <= other_s
        if is_cut:
            device, config, least_s = divided, given, cut_s
    is_taken = least_s * CLEARLY_BETTER_BY <= here_s
    reason = f"{_expects(device, least_s)}, and {_alone(CUT_ON, here_s)}, which has parts by numpy"
    if not is_taken:
        reason = (
            f"it stays on {CUT_ON}, as {reason}, and another has to be {CLEARLY_BETTER_BY} times "
            f"as fast"
        )
    return CutChoice(device, config, is_cut, is_taken, reason)


def _divided(
    core: CoreHandle,
    model: Model,
    prices: Prices,
    other: str,
    config_of: ConfigOf,
) -> tuple[str, Mapping[str, Any], float]:
    """Return the HETERO that has both devices, its properties, and what it is expected to take."""
    device, moved = f"HETERO:{CUT_ON},{other}", prices.moved(other)
    config = config_of(device, (CUT_ON, other))
    if moved:
        config = {**config, AFFINITY: moved}
    division = cast("PlannedCore", core).divide_network(model, device, config)
    return device, config, prices.cut_s(cast("Any", division).partition)


def _priced(node: Node, cost: NodeCost, left: set[str]) -> _Price:
    is_left = not left.isdisjoint(node.fused_from)
    return _Price(node, cost, numpy_s(node, cost) if is_left else 0.0)


def _piece(device: str, prices: Iterable[_Price]) -> Piece:
    if device != CUT_ON:
        return Piece(device, [item.cost for item in prices])
    held = list(prices)
    numpy_s = sum(item.numpy_s for item in held)
    return Piece(device, [item.cost for item in held if not item.numpy_s], numpy_s)


def _expects(device: str, seconds: float) -> str:
    return f"{device} is expected to take {1000 * seconds:.3g} ms a request"


def _alone(device: str, seconds: float) -> str:
    return f"{device} alone {1000 * seconds:.3g} ms"
