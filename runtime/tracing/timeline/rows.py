"""The rows that spans are drawn in: devices, their executors, their lanes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..recorder import Span

__all__ = ["ExecutorRows", "LaneRow", "rows_of"]


@dataclass(frozen=True)
class LaneRow:
    """Spans that follow each other on one lane, by their numbers; none overlaps another."""

    lane: str
    spans: tuple[int, ...]


@dataclass(frozen=True)
class ExecutorRows:
    """One executor of one device; ``lane_count`` of its lanes have spans."""

    device: str
    executor: str
    lane_count: int
    rows: tuple[LaneRow, ...]


def rows_of(spans: Sequence[Span]) -> tuple[ExecutorRows, ...]:
    """Sort spans, which are in order of start, into rows: by device, executor and lane.

    Devices come in the order of their first span, executors and lanes by name. A lane on which
    several callers ran at once (an executor without a thread) gets as many rows as it needs, the
    later ones with a number behind the name.
    """
    devices = {device: place for place, device in enumerate(dict.fromkeys(s.device for s in spans))}
    lanes: dict[tuple[str, str, str], list[int]] = {}
    for index, span in enumerate(spans):
        lanes.setdefault((span.device, span.executor, span.lane), []).append(index)
    executors: dict[tuple[str, str], list[tuple[str, list[int]]]] = {}
    for key in sorted(lanes, key=lambda key: (devices[key[0]], _natural(key[1]), _natural(key[2]))):
        executors.setdefault(key[:2], []).append((key[2], lanes[key]))
    return tuple(
        ExecutorRows(
            device,
            executor,
            len(held),
            tuple(row for lane, indices in held for row in _packed(lane, indices, spans)),
        )
        for (device, executor), held in executors.items()
    )


def _packed(lane: str, indices: Sequence[int], spans: Sequence[Span]) -> list[LaneRow]:
    rows: list[list[int]] = []
    ends: list[int] = []
    for index in indices:
        span = spans[index]
        for place, end_ns in enumerate(ends):
            if end_ns <= span.started_ns:
                rows[place].append(index)
                ends[place] = span.ended_ns
                break
        else:
            rows.append([index])
            ends.append(span.ended_ns)
    return [
        LaneRow(lane if number == 1 else f"{lane} ({number})", tuple(row))
        for number, row in enumerate(rows, start=1)
    ]


def _natural(name: str) -> list[tuple[int, str]]:
    """Make a key by which lane 10 comes after lane 9."""
    parts = "".join(char if char.isdigit() else f" {char} " for char in name).split()
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
