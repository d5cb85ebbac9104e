"""Which of several plans for one operation is used: the decision, apart from measuring them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Choice", "Timing", "UselessError", "choose", "measure"]

_TIE = 0.02  # of the fastest; below it, one measurement differs from the next by as much
_HOPELESS = 3.0  # times the fastest: noise does not make up for that


@dataclass(frozen=True)
class Timing:
    """What came of measuring a plan: seconds of single runs, or why it must not be used."""

    seconds: tuple[float, ...] = ()
    refusal: str | None = None


@dataclass(frozen=True)
class Choice:
    """The plan to use, by its place among the candidates; ``median_s`` of a run if measured.

    ``is_final`` says that nothing more would be known another time.
    """

    index: int
    median_s: float | None = None
    is_final: bool = True


class UselessError(Exception):
    """No plan can be used; the text says why not, for the first of them."""


def choose(timings: Sequence[Timing]) -> Choice:
    """Choose by the median of the seconds; among equals, the one that is recommended first.

    ``timings`` are in the order of recommendation. Pure. Raises UselessError if all are refused.
    """
    medians = [
        statistics.median(timing.seconds) if timing.refusal is None and timing.seconds else None
        for timing in timings
    ]
    known = [median for median in medians if median is not None]
    if not known:
        reasons = dict.fromkeys(timing.refusal or "it was not measured" for timing in timings)
        raise UselessError("; ".join(list(reasons)[:3]) or "there are none")
    enough = min(known) * (1.0 + _TIE)
    index, median = next(
        (index, median)
        for index, median in enumerate(medians)
        if median is not None and median <= enough
    )
    return Choice(index, median)


def measure(
    count: int, glance: Callable[[int], Timing], gaze: Callable[[int], Timing]
) -> list[Timing]:
    """Measure plans in two rounds: all at a glance, and again well those that may be the fastest.

    ``glance`` and ``gaze`` measure the plan of a number below ``count``. A plan that is far slower
    than another keeps what the glance gave.
    """
    glances = [glance(index) for index in range(count)]
    quick = [min(timing.seconds, default=None) for timing in glances]
    fastest = min((seconds for seconds in quick if seconds is not None), default=0.0)
    return [
        gaze(index)
        if timing.refusal is None and seconds is not None and seconds <= fastest * _HOPELESS
        else timing
        for index, (timing, seconds) in enumerate(zip(glances, quick, strict=True))
    ]
