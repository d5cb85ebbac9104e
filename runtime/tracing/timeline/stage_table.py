"""What a trace says of each stage and each executor, in numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..recorder import Span
from .rows import ExecutorRows

__all__ = ["ExecutorRow", "StageRow", "executor_table", "percentile_ns", "stage_table"]


@dataclass(frozen=True)
class StageRow:
    """One stage on one executor of a device. ``share`` is of the lanes' time, 0 to 1."""

    stage: str
    device: str
    executor: str
    count: int
    service_p50_ns: int
    service_p99_ns: int
    queue_p50_ns: int
    queue_p99_ns: int
    share: float


@dataclass(frozen=True)
class ExecutorRow:
    """One executor: in which share of ``lane_count`` lanes' time it ran spans, 0 to 1."""

    device: str
    executor: str
    lane_count: int
    share: float


def stage_table(
    spans: Sequence[Span], executors: Sequence[ExecutorRows], elapsed_ns: int
) -> list[StageRow]:
    """Sum up each stage, in the order in which they first started."""
    lane_counts = {(item.device, item.executor): item.lane_count for item in executors}
    groups: dict[tuple[str, str, str], list[Span]] = {}
    for span in spans:
        groups.setdefault((span.stage, span.device, span.executor), []).append(span)
    rows = []
    for (stage, device, executor), held in groups.items():
        services = sorted([span.ended_ns - span.started_ns for span in held])
        queues = sorted([span.started_ns - span.queued_ns for span in held])
        rows.append(
            StageRow(
                stage=stage,
                device=device,
                executor=executor,
                count=len(held),
                service_p50_ns=percentile_ns(services, 50),
                service_p99_ns=percentile_ns(services, 99),
                queue_p50_ns=percentile_ns(queues, 50),
                queue_p99_ns=percentile_ns(queues, 99),
                share=_share(sum(services), elapsed_ns, lane_counts[device, executor]),
            )
        )
    return rows


def executor_table(
    spans: Sequence[Span], executors: Sequence[ExecutorRows], elapsed_ns: int
) -> list[ExecutorRow]:
    """Return how busy each executor was."""
    return [
        ExecutorRow(
            item.device,
            item.executor,
            item.lane_count,
            _share(
                sum(
                    spans[index].ended_ns - spans[index].started_ns
                    for row in item.rows
                    for index in row.spans
                ),
                elapsed_ns,
                item.lane_count,
            ),
        )
        for item in executors
    ]


def percentile_ns(ordered: Sequence[int], number: int) -> int:
    """Return the smallest of the ordered values that ``number`` percent of them do not exceed."""
    return ordered[max(0, -(-len(ordered) * number // 100) - 1)]


def _share(busy_ns: int, elapsed_ns: int, lane_count: int) -> float:
    return min(1.0, busy_ns / (elapsed_ns * lane_count)) if elapsed_ns > 0 else 0.0
