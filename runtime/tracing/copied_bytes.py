"""The bytes that stages copy: noted where it happens, told by stage and kind. Pure but for a ring.

A stage says what it has copied when it has enqueued or made the copies, and a run without copies
says nothing. What a stage copies of one kind is noted together.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = [
    "KINDS",
    "CopiedBytes",
    "CopiesRing",
    "CopyCounts",
    "StageCopies",
    "TracedSpan",
    "copies_of_spans",
    "merged_counts",
]

KINDS = ("upload", "download", "device", "host", "later_download")
"""What is copied: to the device, from it, on it, on the host; and of outputs that stay there, to
the host when somebody reads them."""

CopyCounts = Mapping[str, Mapping[str, int]]
"""Bytes by stage and kind."""


class CopiedBytes(NamedTuple):
    """What one stage of one run has copied; ``kind`` is one of KINDS."""

    stage: str
    kind: str
    size_bytes: int


StageCopies = tuple[str, Mapping[str, int], int]
"""A stage, the bytes that it has copied by kind, and when the span began of which they are."""


class TracedSpan(Protocol):
    """What finds the copies of a span."""

    @property
    def stage(self) -> str: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def age(self) -> int: ...


_Noted = tuple[int, int, CopiedBytes]
"""The run's age, when the span began of which it is (0: the stage has one), what was copied."""


class CopiesRing:
    """The latest copies of one network, and how many bytes there were. Guarded by its recorder.

    ``keep`` alone is for any thread, without a lock.
    """

    def __init__(self, capacity: int) -> None:
        self._uncounted: deque[_Noted] = deque()
        self._ring: deque[_Noted] = deque(maxlen=capacity)
        self._bytes: dict[str, Counter[str]] = {}

    def keep(self, age: int, copies: Iterable[tuple[CopiedBytes, int]]) -> int:
        """Note those of one run, with when the spans began; return how many are to be counted."""
        for copied, started_ns in copies:
            self._uncounted.append((age, started_ns, copied))
        return len(self._uncounted)

    def count(self) -> None:
        """Add what came since the last time to the sums and the ring."""
        for _ in range(len(self._uncounted)):
            noted = self._uncounted.popleft()
            self._ring.append(noted)
            stage, kind, size_bytes = noted[2]
            self._bytes.setdefault(stage, Counter())[kind] += size_bytes

    def latest(self) -> list[_Noted]:
        """Copy the ring, oldest first."""
        return list(self._ring)

    def totals(self) -> dict[str, dict[str, int]]:
        """Sum up all that was counted."""
        return {stage: dict(counts) for stage, counts in self._bytes.items()}


def copies_of_spans(
    spans: Sequence[TracedSpan], noted: Iterable[_Noted]
) -> dict[int, dict[str, int]]:
    """Return what the spans have copied by kind, by their places; those that copied nothing lack.

    Of several spans of a stage and run, the last has what names none of them: that is what a
    device's queue did, where there is one.
    """
    exact: dict[tuple[int, str, int], int] = {}
    last: dict[tuple[int, str], int] = {}
    found: dict[int, dict[str, int]] = {}
    copies = list(noted)
    ages = {age for age, _, _ in copies}
    for place, span in enumerate(spans):
        if span.age in ages:
            exact[span.age, span.stage, span.started_ns] = last[span.age, span.stage] = place
    for age, started_ns, copied in copies:
        place = exact.get((age, copied.stage, started_ns), last.get((age, copied.stage), -1))
        if place >= 0:
            counts = found.setdefault(place, {})
            counts[copied.kind] = counts.get(copied.kind, 0) + copied.size_bytes
    return found


def merged_counts(parts: Iterable[CopyCounts]) -> dict[str, dict[str, int]]:
    """Add up the bytes of several networks, stage by stage."""
    merged: dict[str, dict[str, int]] = {}
    for part in parts:
        for stage, counts in part.items():
            own = merged.setdefault(stage, {})
            for kind, size_bytes in counts.items():
                own[kind] = own.get(kind, 0) + size_bytes
    return merged
