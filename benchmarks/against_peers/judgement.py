"""How slots are ordered, and what their numbers say: pure functions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeVar

TIE = 0.05  # two runs of the same engine differ by so much
FOREIGN_CPUS = 0.1  # a slot beside which others kept more than this busy is noisy
BUSY_FIELDS = (0, 1, 2, 5, 6, 7)  # of /proc/stat: user, nice, system, irq, softirq, steal


@dataclass(frozen=True)
class Slot:
    """One engine's turn: its number, and how many CPUs others kept busy meanwhile."""

    value: float
    foreign_cpus: float

    @property
    def is_noisy(self) -> bool:
        return self.foreign_cpus > FOREIGN_CPUS


OneSlot = TypeVar("OneSlot", bound=Slot)


@dataclass(frozen=True)
class Verdict:
    """How ours compares with the better peer: above 1 is better, whatever the unit."""

    ratio: float
    peer: str

    @property
    def word(self) -> str:
        if abs(self.ratio - 1) < TIE:
            return "tie"
        return "ahead" if self.ratio > 1 else "behind"


def slot_orders(engines: Sequence[str], slot_count: int, seed: int) -> list[list[str]]:
    """Give the order of the engines in each round; each has one slot a round."""
    chance = random.Random(seed)
    return [chance.sample(engines, len(engines)) for _ in range(slot_count)]


def counted(slots: Sequence[Slot]) -> list[float]:
    return [slot.value for slot in counted_slots(slots)]


def counted_slots(slots: Sequence[OneSlot]) -> Sequence[OneSlot]:
    """Give the quiet slots, or all where fewer than half are quiet."""
    quiet = [slot for slot in slots if not slot.is_noisy]
    return quiet if 2 * len(quiet) >= len(slots) else slots


def lower_quartile(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else quantiles(values, n=4, method="inclusive")[0]


def middle(values: Sequence[float]) -> float:
    return median(values)


def verdict(ours: float, peers: Mapping[str, float], is_more_better: bool) -> Verdict | None:
    """Compare with the better of the peers; None where there are none."""
    if not peers:
        return None
    peer = (max if is_more_better else min)(peers, key=peers.__getitem__)
    ratio = ours / peers[peer] if is_more_better else peers[peer] / ours
    return Verdict(ratio, peer)


def busy_s(stat: str, ticks_per_s: int) -> float:
    """Read the seconds that all CPUs together have been busy from the text of /proc/stat."""
    fields = stat.split("\n", 1)[0].split()[1:]
    return sum(int(fields[index]) for index in BUSY_FIELDS if index < len(fields)) / ticks_per_s


def foreign_cpus(busy_s: float, own_s: float, elapsed_s: float) -> float:
    """Give how many CPUs others kept busy; the kernel counts coarsely, so never below 0."""
    return max(0.0, busy_s - own_s) / elapsed_s
