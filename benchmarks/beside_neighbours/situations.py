"""What an inference has beside it: a table, and how its entries share processes and take turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from against_peers.process import REST_S

WARM_UP_S = 0.5  # after loading
LEAD_IN_S = 0.2  # of each turn, uncounted: caches fill, and engines notice what has changed
LOAD_S = 2.5  # for an engine to start and load, a rough mean


class Placement(NamedTuple):
    """What is settled before an engine loads: situations that agree in it share processes."""

    quota: float | None  # in CPUs
    network_count: int


@dataclass(frozen=True)
class Situation:
    """What is beside an inference; without anything, it is alone."""

    title: str
    busy_processes: int = 0
    quota: float | None = None
    busy_threads: int = 0
    decoders: int = 0
    network_count: int = 1

    @property
    def placement(self) -> Placement:
        return Placement(self.quota, self.network_count)

    @property
    def is_alone(self) -> bool:
        return self == Situation(self.title)


SITUATIONS = {
    "alone": Situation("alone"),
    "busy1": Situation("1 busy process", busy_processes=1),
    "busy2": Situation("2 busy processes", busy_processes=2),
    "busy4": Situation("4 busy processes", busy_processes=4),
    "quota1.5": Situation("quota of 1.5 CPUs", quota=1.5),
    "quota1": Situation("quota of 1 CPU", quota=1.0),
    "thread": Situation("busy Python thread", busy_threads=1),
    "decoders": Situation("2 decoder threads", decoders=2),
    "pair": Situation("2 networks at once", network_count=2),
}


def by_placement(names: Sequence[str]) -> dict[Placement, list[str]]:
    """Group situations by what their processes have in common, in the order that they came in."""
    groups: dict[Placement, list[str]] = {}
    for name in names:
        groups.setdefault(SITUATIONS[name].placement, []).append(name)
    return groups


def turn_order(engines: Sequence[str], number: int) -> list[str]:
    """Give the order of the engines in one round.

    Each comes first as often as any other, and each pair is in both orders equally often, over
    twice as many rounds as there are engines.
    """
    first = number % len(engines)
    turned = [*engines[first:], *engines[:first]]
    return turned[::-1] if number // len(engines) % 2 else turned


def threads_for(cpu_count: int, quota: float | None) -> int:
    """Give how many threads can compute at a time; a part of a CPU counts as one."""
    return cpu_count if quota is None else max(1, min(cpu_count, math.ceil(quota)))


def expected_s(
    model_count: int, situations: Sequence[str], engine_count: int, round_count: int, turn_s: float
) -> float:
    """Estimate how long all of it takes, if no inference is longer than a turn."""
    loads = len(by_placement(situations)) * (LOAD_S + WARM_UP_S + LEAD_IN_S)
    turns = len(situations) * round_count * (REST_S + LEAD_IN_S + turn_s)
    return model_count * engine_count * (loads + turns)
