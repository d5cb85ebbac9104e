"""The decisions of a search for the best configuration: what to try next, when to stop, which wins.

The search starts from the best of the configurations that a hint gives. It changes one property at
a time by one step, and runs challenger and best so far in turn, slice by slice, so that what
else the machine does falls on both: what counts is the ratio of two slices that follow each other.
A step that wins is followed by the next one along the same axis. Where no step wins any more, or
the time is up, the best and the configurations of the hints are measured in turn once more.

Many rows in a run are had in two ways: requests of that many rows, or BATCH, which joins requests
of one. Each is an axis, and a choice goes one way at a time; the step from one way to the other
keeps the rows. All pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

__all__ = [
    "AXES",
    "Choice",
    "Goal",
    "Settled",
    "Slice",
    "Space",
    "doublings",
    "has_won",
    "is_time_for_search",
    "next_challenger",
    "score",
    "slice_seconds",
    "winner_of",
]

AXES = ("streams", "precision", "joined_rows", "batch", "requests", "threads")
"""In the order in which they are tried: first what changes most."""

SEARCH_SHARE = 0.75
"""Of the time; the rest is for the last measurement."""
FEW_ROUNDS, MOST_ROUNDS = 2, 5
CLEARLY_BETTER, CLEARLY_WORSE = 1.15, 0.9
BETTER = 1.02
"""What a challenger has to be better by; below, the simpler configuration stays."""
FIRST_JOINED = 16
"""Where the search on BATCH begins: joining a few rows may cost more than it brings."""


@dataclass(frozen=True)
class Choice:
    """One configuration to measure; None leaves a property as the device has it."""

    hint: str | None = None
    streams: int | None = None
    threads: int | None = None
    requests: int | None = None
    """Requests in flight; None: as many as the network finds optimal."""
    batch: int = 1
    """Rows of a request."""
    precision: str | None = None
    joined_rows: int = 1
    """Rows of a run that BATCH joins, at most; 1: without BATCH."""

    def config(self) -> dict[str, Any]:
        """Return the properties to load a network with."""
        properties = {
            "PERFORMANCE_HINT": self.hint,
            "NUM_STREAMS": self.streams,
            "INFERENCE_NUM_THREADS": self.threads,
            "INFERENCE_PRECISION_HINT": self.precision,
        }
        return {key: value for key, value in properties.items() if value is not None}


@dataclass(frozen=True)
class Settled:
    """The numbers that a loaded network has, where its choice left them to the device."""

    streams: int
    threads: int
    requests: int


@dataclass(frozen=True)
class Space:
    """The values of each axis, in order; an axis without values is not searched.

    The first precision is the device's own, which a choice has that names none.
    """

    streams: Sequence[int] = ()
    threads: Sequence[int] = ()
    requests: Sequence[int] = ()
    batch: Sequence[int] = ()
    precision: Sequence[str] = ()
    joined_rows: Sequence[int] = ()


@dataclass(frozen=True)
class Slice:
    """What was measured in a slice of time."""

    items_per_s: float
    median_ms: float
    p90_ms: float


@dataclass(frozen=True)
class Goal:
    """What is wanted: throughput, perhaps with a bound on latency, or latency."""

    is_latency: bool = False
    most_ms: float | None = None


def score(measured: Slice, goal: Goal) -> float:
    """Return how good a slice is: more is better, and any within the bound beats all beyond.

    Beyond it, the one with less latency is better.
    """
    if goal.is_latency:
        return 1e3 / max(measured.median_ms, 1e-9)
    if goal.most_ms is not None and measured.p90_ms > goal.most_ms:
        return 1e-9 / measured.p90_ms
    return measured.items_per_s


def doublings(most: int) -> tuple[int, ...]:
    """List 1, 2, 4 and so on up to ``most``, which is the last."""
    values = []
    value = 1
    while value < most:
        values.append(value)
        value *= 2
    return (*values, max(1, most))


def slice_seconds(budget_s: float) -> float:
    """Return how long a slice is: a hundred and fifty fit into the budget, within reason."""
    return min(1.0, max(0.05, budget_s / 150))


def is_time_for_search(elapsed_s: float, budget_s: float) -> bool:
    """True while there is time for another challenger, and for the last measurement after it."""
    return elapsed_s < SEARCH_SHARE * budget_s


def winner_of(scores: Sequence[Sequence[float]]) -> int:
    """Return the index of the best of several that were measured in turn, the simplest first.

    A later one has to be clearly better, by the median of the ratios round by round.
    """
    best = 0
    for index in range(1, len(scores)):
        pairs = zip(scores[index], scores[best], strict=True)
        if median(mine / other for mine, other in pairs) > BETTER:
            best = index
    return best


def has_won(ratios: Sequence[float]) -> bool | None:
    """Return whether a challenger is better; None: measure both once more.

    ``ratios``: its score over that of the best so far, of slices that followed each other.
    """
    if len(ratios) >= MOST_ROUNDS:
        return median(ratios) > BETTER
    if len(ratios) < FEW_ROUNDS:
        return None
    if max(ratios) < (CLEARLY_WORSE if len(ratios) == FEW_ROUNDS else 1.0):
        return False
    return True if min(ratios) > CLEARLY_BETTER else None


def next_challenger(
    best: Choice, settled: Settled, space: Space, tried: Set[Choice], last_axis: str | None = None
) -> tuple[str, Choice] | None:
    """Return the next configuration to try and the axis that it moves along; None: none is left.

    ``last_axis`` is the one that was moved along with success last.
    """
    order = [last_axis, *AXES] if last_axis is not None else AXES
    for axis in dict.fromkeys(order):
        for choice in _steps(best, settled, space, axis):
            if choice not in tried:
                return axis, choice
    return None


def _steps(best: Choice, settled: Settled, space: Space, axis: str) -> Iterator[Choice]:
    """Yield the choices one step up and one down; of precisions, all others."""
    if axis == "precision":
        for precision in (None, *space.precision[1:]):
            if space.precision and precision != best.precision:
                yield replace(best, precision=precision)
        return
    values: Sequence[int] = getattr(space, axis)
    rows = {"batch": best.batch, "joined_rows": best.joined_rows}
    if axis in rows and max(rows.values()) > rows[axis]:
        yield from _other_way(best, axis, values, max(rows.values()))
        return
    own_value: int = rows[axis] if axis in rows else getattr(settled, axis)
    if axis == "joined_rows" and own_value == 1:
        yield from _other_way(best, axis, values, FIRST_JOINED)
        return
    above = [value for value in values if value > own_value]
    below = [value for value in values if value < own_value]
    for value in (*above[:1], *below[-1:]):
        changes: dict[str, Any] = {axis: value}
        if axis in ("streams", "joined_rows"):
            changes["requests"] = None  # what suits that number
        yield replace(best, **changes)


def _other_way(best: Choice, axis: str, values: Sequence[int], rows: int) -> Iterator[Choice]:
    """Yield the choice with that number of rows in a run along this axis, or the most below."""
    fitting = [value for value in values if 1 < value <= rows]
    if fitting:
        sizes: dict[str, Any] = {"batch": 1, "joined_rows": 1, axis: fitting[-1]}
        yield replace(best, requests=None, **sizes)
