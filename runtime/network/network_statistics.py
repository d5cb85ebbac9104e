"""What ``network.statistics()`` returns, read from a network's admission, spans and plans."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any, Protocol

from ..runs.run_admission import RunAdmission
from ..tracing.copied_bytes import CopyCounts
from ..tracing.durations import NO_DURATIONS
from ..tracing.recorder import StageTally, busy_shares
from ..tracing.statistics import OUTCOMES, NetworkStatistics, PlanStatistics, statistics_of

__all__ = ["network_statistics"]


class CountedNetwork(Protocol):
    """What the statistics ask of a network."""

    name: str
    device: str
    copy: int
    admission: RunAdmission[Any]


def network_statistics(
    network: CountedNetwork,
    tallies: list[StageTally],
    copied_bytes: CopyCounts,
    plans: PlanStatistics,
    parts: tuple[NetworkStatistics, ...],
) -> NetworkStatistics:
    """Picture a network as it is now, beside what its stages, plans and parts say. Any thread."""
    admission = network.admission
    latencies = admission.latencies()
    counts: dict[str, Any] = {
        f"{outcome}_request_count": latencies.get(outcome, NO_DURATIONS).count
        for outcome in OUTCOMES
    }
    waiting = admission.waiting_count
    started_ns = admission.first_run_ns
    elapsed_ns = perf_counter_ns() - started_ns if started_ns else 0
    lane_counts = {tally.executor: tally.lane_count for tally in tallies}
    return NetworkStatistics(
        network=network.name,
        device=network.device,
        copy=network.copy,
        **counts,
        latencies=latencies,
        slot_wait=admission.slot_wait(),
        waiting_run_count=waiting,
        running_run_count=max(0, admission.run_count - waiting),
        elapsed_s=elapsed_ns / 1e9,
        stages=tuple([statistics_of(tally) for tally in tallies]),
        busy_shares=busy_shares(tallies, elapsed_ns, lane_counts),
        plans=plans,
        batch_sizes=admission.arrivals.batch_sizes(),
        copied_bytes=copied_bytes,
        parts=parts,
    )
