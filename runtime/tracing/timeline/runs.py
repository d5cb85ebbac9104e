"""Which spans are one run, and what each of them waited for. Pure.

A span waits for the one of its run that ended last before it was queued: of several inputs the one
that came last, which is what decides. So the spans of a run form a tree whose root is its arrival.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..recorder import Span

__all__ = ["ARRIVAL", "TracedRun", "runs_of"]

ARRIVAL = -1
"""What the first spans of a run waited for."""


@dataclass(frozen=True)
class TracedRun:
    """One run: its spans by their numbers in the trace, in the order in which they were queued.

    ``before`` has for each of them the number of the span that it waited for, or ARRIVAL.
    ``label`` is the request's id, with the run's number behind a dot if the request ran repeatedly,
    and the network's name before it in a trace of several.
    """

    label: str
    run_id: int
    arrived_ns: int
    ended_ns: int
    spans: tuple[int, ...]
    before: tuple[int, ...]
    is_complete: bool

    @property
    def latency_ns(self) -> int:
        """From its arrival to the end of its last span."""
        return self.ended_ns - self.arrived_ns


def runs_of(spans: Sequence[Span], forgot_until_ns: int = 0) -> tuple[TracedRun, ...]:
    """Sort spans into runs, in order of arrival. Those that came before the time are incomplete."""
    groups = _grouped(spans)
    arrivals = [_arrived_ns(spans, group) for group in groups]
    order = sorted(range(len(groups)), key=lambda place: arrivals[place])
    keys = [(spans[group[0]].network, spans[group[0]].run_id) for group in groups]
    run_counts = Counter(keys)
    numbers: Counter[tuple[str, int]] = Counter()
    runs = []
    for place in order:
        group = groups[place]
        network, run_id = key = keys[place]
        numbers[key] += 1
        label = f"{network} {run_id}" if network else f"{run_id}"
        runs.append(
            TracedRun(
                label=label if run_counts[key] == 1 else f"{label}.{numbers[key]}",
                run_id=run_id,
                arrived_ns=arrivals[place],
                ended_ns=max(spans[index].ended_ns for index in group),
                spans=tuple(group),
                before=tuple(_waited_for(spans, group)),
                is_complete=arrivals[place] >= forgot_until_ns,
            )
        )
    return tuple(runs)


def _grouped(spans: Sequence[Span]) -> list[list[int]]:
    """List the spans of each run, in the order in which they were queued."""
    order = sorted(
        range(len(spans)),
        key=lambda index: (spans[index].queued_ns, spans[index].started_ns, spans[index].ended_ns),
    )
    groups: dict[object, list[int]] = {}
    chains: dict[tuple[int, int], list[int]] = {}
    for index in order:
        span = spans[index]
        if span.age:
            groups.setdefault(span.age, []).append(index)
            continue
        chain = chains.pop((span.run_id, span.queued_ns), None)  # inline: one after the other
        if chain is None:
            chain = groups["chain", index] = []
        chain.append(index)
        chains[span.run_id, span.ended_ns] = chain
    return list(groups.values())


def _arrived_ns(spans: Sequence[Span], group: Sequence[int]) -> int:
    first = spans[group[0]]
    return min(first.arrived_ns, first.queued_ns) if first.arrived_ns else first.queued_ns


def _waited_for(spans: Sequence[Span], group: Sequence[int]) -> list[int]:
    ends: list[tuple[int, int]] = []
    before = []
    for place, index in enumerate(group):
        span = spans[index]
        last = bisect_right(ends, (span.queued_ns, place)) - 1
        before.append(group[ends[last][1]] if last >= 0 else ARRIVAL)
        insort(ends, (span.ended_ns, place))
    return before
