"""Where to cut a chain of nodes so that the slowest stage of a pipeline is as fast as possible.

Pure. A stage is a run of neighbours in the order of the nodes, on one device, and each device has
one stage at most. What a stage takes is what its nodes take, and what it takes to bring in what
crosses into it, and out of it. With P the running sum of a device's node times and C what it takes
to carry what crosses at a place, a stage from i to j takes (P[j] + C[j]) - (P[i] - C[i]).

**Dynamic programming under a bound.** For a bound T on every stage, ``reached[state][j]`` says
whether the first j nodes can be cut into stages on the devices of a state, none slower than T. A
device takes a state on: j is reached if some i is, in the window from which the device may run to
j (no node that it refuses, no more weights than it has room for), with
P[i] - C[i] >= P[j] + C[j] - T.
The start of that window only moves on with j, so the largest P[i] - C[i] of every window comes from
one table. T is then halved between what cannot be and the best cut found, whose slowest stage
becomes the new bound.

**States.** Stages may come in any order of the devices. Devices that are alike are told apart by
nothing, so a state counts how many of each kind are used; where that would be too many states, the
devices keep the order of their list, and any of them may be left out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

__all__ = ["PipelineDevice", "PipelineStage", "cut_pipeline"]

MOST_STATES = 64
"""Of counts of kinds of devices; 6 devices of which no two are alike."""

CLOSE_ENOUGH = 1e-9
"""Of the slowest stage: how much faster it might still be."""

_Floats = np.ndarray[Any, np.dtype[np.float64]]
_Truths = np.ndarray[Any, np.dtype[np.bool_]]
_Places = np.ndarray[Any, np.dtype[np.intp]]

Weight = tuple[Hashable, int]
"""What tells a constant from others, and its bytes."""


@dataclass(frozen=True)
class PipelineDevice:
    """What nodes take on a device, in seconds; infinity: it refuses the node.

    carry_s: what it takes to bring in, or out, what crosses before each node, and behind the last;
    so one more than there are nodes. memory_bytes: for the constants of its stage; None: no limit.
    """

    name: str
    node_s: tuple[float, ...]
    carry_s: tuple[float, ...]
    memory_bytes: int | None = None


@dataclass(frozen=True)
class PipelineStage:
    """The nodes ``first`` to ``end``, which is the first of the next one, and what they take."""

    device: str
    first: int
    end: int
    seconds: float


def cut_pipeline(
    devices: Sequence[PipelineDevice],
    weights: Sequence[Sequence[Weight]] = (),
    joined: Sequence[int] = (),
) -> list[PipelineStage] | None:
    """Return the stages, in order, whose slowest one is fastest; None if no cut fits.

    devices: the preferred one first where they are alike. weights: the constants of each node, if
    memory is limited; what several nodes of a stage use is held once. joined: places that are not
    cut, by the node behind them. Of cuts that are as fast, one with the fewest stages is returned.
    O(devices * nodes * log nodes) for each of some thirty bounds.
    """
    count = len(devices[0].node_s) if devices else 0
    if not count:
        return [] if devices else None
    kinds = _kinds(devices, weights)
    may_cut = np.ones(count + 1, bool)
    may_cut[list(joined)] = False
    may_cut[[0, count]] = True
    states = _States(kinds, may_cut)
    # More than the whole takes on any device; not infinity, which a place without a way to it has.
    best = states.cut_under(
        1.0 + 2 * max(float(kind.ends.max() - kind.starts.min()) for kind in kinds)
    )
    if best is None:
        return None
    slowest, none = _slowest(best), 0.0
    while slowest - none > CLOSE_ENOUGH * slowest:
        bound = (slowest + none) / 2
        found = states.cut_under(bound)
        if found is None:
            none = bound
        else:
            best, slowest = found, min(bound, _slowest(found))
    names = [list(kind.names) for kind in kinds]
    return [
        PipelineStage(names[kind].pop(0), first, end, seconds) for kind, first, end, seconds in best
    ]


_Piece = tuple[int, int, int, float]
"""The kind of its device, first node, end, seconds."""


def _slowest(pieces: Sequence[_Piece]) -> float:
    return max(seconds for _, _, _, seconds in pieces)


@dataclass(frozen=True)
class _Kind:
    """Devices that are alike; arrays have an element for each place between nodes."""

    names: tuple[str, ...]
    starts: _Floats
    """P - C: what is saved by a stage that starts here."""
    ends: _Floats
    """P + C: what is spent by a stage that ends here."""
    window: _Places
    """The first place from which a stage may run to here."""

    def seconds(self, first: int, end: int) -> float:
        return float(self.ends[end] - self.starts[first])


def _kinds(devices: Sequence[PipelineDevice], weights: Sequence[Sequence[Weight]]) -> list[_Kind]:
    alike: dict[object, list[str]] = {}
    for device in devices:
        key = device.node_s, device.carry_s, device.memory_bytes
        alike.setdefault(key, []).append(device.name)
    named = {device.name: device for device in devices}
    return [_kind(tuple(names), named[names[0]], weights) for names in alike.values()]


def _kind(
    names: tuple[str, ...], device: PipelineDevice, weights: Sequence[Sequence[Weight]]
) -> _Kind:
    node_s = np.asarray(device.node_s, float)
    is_refused = ~np.isfinite(node_s)
    sums = np.concatenate([[0.0], np.cumsum(np.where(is_refused, 0.0, node_s))])
    carry = np.asarray(device.carry_s, float)
    places = np.arange(1, len(node_s) + 1)
    window = np.concatenate([[0], np.maximum.accumulate(np.where(is_refused, places, 0))])
    if device.memory_bytes is not None:
        window = np.maximum(window, _room_windows(weights, device.memory_bytes))
    return _Kind(names, sums - carry, sums + carry, window)


def _room_windows(weights: Sequence[Sequence[Weight]], limit: int) -> _Places:
    """Return for each place the first from which all constants up to there fit."""
    first, held = 0, 0
    users: dict[Hashable, int] = {}
    windows = [0]
    for end, constants in enumerate(weights, 1):
        for key, size in constants:
            users[key] = users.get(key, 0) + 1
            held += size if users[key] == 1 else 0
        while held > limit:
            for key, size in weights[first]:
                users[key] -= 1
                held -= size if users[key] == 0 else 0
            first += 1
        windows.append(min(first, end))
    return np.asarray(windows)


@dataclass(frozen=True)
class _Move:
    """A device that takes a state on to another; kind None: it is left out."""

    source: int
    kind: int | None


@dataclass
class _States:
    """Which devices are used, as a graph of states without a cycle, in topological order."""

    kinds: Sequence[_Kind]
    may_cut: _Truths
    moves: list[list[_Move]] = field(init=False)
    """Those that lead to each state."""

    def __post_init__(self) -> None:
        counts = [len(kind.names) for kind in self.kinds]
        if math.prod(count + 1 for count in counts) <= MOST_STATES:
            self.moves = _counting_moves(counts)
        else:
            order = [number for number, count in enumerate(counts) for _ in range(count)]
            self.moves = [[]] + [
                [_Move(place, kind), _Move(place, None)] for place, kind in enumerate(order)
            ]

    def cut_under(self, bound: float) -> list[_Piece] | None:
        """Cut so that no stage is slower than the bound, in few stages; None if it cannot be."""
        last = len(self.may_cut) - 1
        reached: list[_Truths] = []
        for number, moves in enumerate(self.moves):
            here = np.zeros(last + 1, bool)
            here[0] = number == 0
            for move in moves:
                source = reached[move.source]
                if move.kind is None:
                    here |= source
                elif source.any():
                    here |= _reach(source, self.kinds[move.kind], bound) & self.may_cut
            reached.append(here)
        ends = [number for number, here in enumerate(reached) if here[last]]
        cuts = [self._walk_back(reached, number, bound) for number in ends]
        return min(cuts, key=lambda cut: (len(cut), _slowest(cut)), default=None)

    def _walk_back(self, reached: Sequence[_Truths], state: int, bound: float) -> list[_Piece]:
        pieces: list[_Piece] = []
        end = len(self.may_cut) - 1
        while end:
            state, piece = next(
                found
                for move in self.moves[state]
                if (found := self._last_piece(reached, move, end, bound)) is not None
            )
            if piece is not None:
                pieces.append(piece)
                end = piece[1]
        return pieces[::-1]

    def _last_piece(
        self, reached: Sequence[_Truths], move: _Move, end: int, bound: float
    ) -> tuple[int, _Piece | None] | None:
        source = reached[move.source]
        if move.kind is None:
            return (move.source, None) if source[end] else None
        kind = self.kinds[move.kind]
        low = int(kind.window[end])
        fits = source[low:end] & (kind.starts[low:end] >= kind.ends[end] - bound)
        if not fits.any():
            return None
        first = low + int(fits.argmax())
        return move.source, (move.kind, first, end, kind.seconds(first, end))


def _counting_moves(counts: Sequence[int]) -> list[list[_Move]]:
    states = list(product(*(range(count + 1) for count in counts)))
    number_of = {state: number for number, state in enumerate(states)}
    moves: list[list[_Move]] = []
    for state in states:
        before = [
            (kind, (*state[:kind], used - 1, *state[kind + 1 :]))
            for kind, used in enumerate(state)
            if used
        ]
        moves.append([_Move(number_of[source], kind) for kind, source in before])
    return moves


def _reach(source: _Truths, kind: _Kind, bound: float) -> _Truths:
    """Return the places to which a stage may run from one of the source's within the bound."""
    starts = np.where(source, kind.starts, -np.inf)
    ends = np.arange(1, len(starts))
    lengths = ends - kind.window[1:]  # of the windows, which end before the place itself
    levels = [starts]
    for level in range(int(lengths.max()).bit_length() - 1):
        half = 1 << level
        levels.append(np.maximum(levels[-1][:-half], levels[-1][half:]))
    here = np.zeros(len(starts), bool)
    depth = np.frexp(lengths)[1] - 1  # the largest power of two in each; -1 for an empty window
    for level, maxima in enumerate(levels):
        at = ends[depth == level]
        left = maxima[kind.window[at]]
        right = maxima[at - (1 << level)]
        here[at] = np.maximum(left, right) >= kind.ends[at] - bound
    return here
