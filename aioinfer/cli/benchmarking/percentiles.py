"""Latencies in numbers: percentiles, their summary, and the busy shares of a window. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.tracing.statistics import NetworkStatistics, StageStatistics
from ..arguments import OptionError

__all__ = [
    "LatencySummary",
    "Window",
    "percentile",
    "summarize",
    "throughput_per_s",
    "window_between",
]


@dataclass(frozen=True)
class LatencySummary:
    """The latencies of one measurement. ``chosen_ms`` is the percentile that was asked for."""

    count: int
    percentile: int
    chosen_ms: float
    average_ms: float
    min_ms: float
    max_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Window:
    """What a network's executors did between two pictures of its statistics."""

    stages: tuple[StageStatistics, ...]
    busy_shares: dict[str, float]


def percentile(ordered: Sequence[float], number: int) -> float:
    """Return the smallest of the ordered values that at least ``number`` percent do not exceed.

    That is ``ordered[ceil(n * number / 100) - 1]``. Raises OptionError for a number outside 1 to
    100 and for no values.
    """
    if not 1 <= number <= 100:
        raise OptionError(f"a percentile is a number from 1 to 100, not {number}")
    if not ordered:
        raise OptionError("nothing was measured, so there is no percentile")
    return ordered[-(-len(ordered) * number // 100) - 1]


def summarize(latencies_ms: Sequence[float], number: int) -> LatencySummary | None:
    """Summarize latencies given in any order; None if there are none."""
    if not latencies_ms:
        return None
    ordered = sorted(latencies_ms)
    return LatencySummary(
        count=len(ordered),
        percentile=number,
        chosen_ms=percentile(ordered, number),
        average_ms=sum(ordered) / len(ordered),
        min_ms=ordered[0],
        max_ms=ordered[-1],
        p50_ms=percentile(ordered, 50),
        p90_ms=percentile(ordered, 90),
        p99_ms=percentile(ordered, 99),
    )


def throughput_per_s(count: int, batch: int, duration_s: float) -> float:
    """Return how many items of a batch were inferred per second; 0 if no time has passed."""
    return count * batch / duration_s if duration_s > 0 else 0.0


def window_between(before: NetworkStatistics, after: NetworkStatistics) -> Window:
    """Return stage times and busy shares of what happened between two pictures."""
    earlier = {(stage.stage, stage.executor): stage for stage in before.stages}
    stages = []
    for stage in after.stages:
        first = earlier.get((stage.stage, stage.executor))
        count = stage.count - (first.count if first else 0)
        if count:
            stages.append(_difference(stage, first, count))
    elapsed_s = after.elapsed_s - before.elapsed_s
    shares = {}
    for executor, share in after.busy_shares.items():
        busy_s = share * after.elapsed_s
        busy_s -= before.busy_shares.get(executor, 0.0) * before.elapsed_s
        shares[executor] = min(1.0, max(0.0, busy_s / elapsed_s)) if elapsed_s > 0 else 0.0
    return Window(tuple(stages), shares)


def _difference(
    stage: StageStatistics, first: StageStatistics | None, count: int
) -> StageStatistics:
    busy_s = stage.busy_s - (first.busy_s if first else 0.0)
    queue_s = stage.mean_queue_s * stage.count
    queue_s -= first.mean_queue_s * first.count if first else 0.0
    return StageStatistics(
        stage=stage.stage,
        executor=stage.executor,
        count=count,
        busy_s=busy_s,
        mean_service_s=busy_s / count,
        mean_queue_s=max(0.0, queue_s / count),
        service=stage.service.since(first.service) if first else stage.service,
        queue=stage.queue.since(first.queue) if first else stage.queue,
    )
