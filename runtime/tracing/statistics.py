"""What a network has done so far, as numbers. See docs/observing.md for what to do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .durations import NO_DURATIONS, Durations
from .recorder import StageTally

__all__ = ["NetworkStatistics", "StageStatistics", "statistics_of"]


@dataclass(frozen=True)
class StageStatistics:
    """One stage on one executor; means are per execution.

    ``service`` is how long the stage ran, ``queue`` how long it waited in its executor's queue
    before: counts, percentiles, maximum and buckets. ``queue`` leaves out the wait for a slot.
    """

    stage: str
    executor: str
    count: int
    busy_s: float
    mean_service_s: float
    mean_queue_s: float
    service: Durations = NO_DURATIONS
    queue: Durations = NO_DURATIONS


@dataclass(frozen=True)
class NetworkStatistics:
    """A frozen picture of a network.

    Requests by outcome: ``finished`` with a result, ``failed`` with an error, ``cancelled`` by the
    caller, ``expired`` by a deadline, ``aborted`` by a close, ``refused`` by MAX_QUEUED_REQUESTS;
    counted before the caller is answered, while the device may not be done yet.
    ``waiting`` have no slot yet, ``running`` have one. ``busy_shares`` says for each executor in
    which share of ``elapsed_s`` (since the first run) its lanes worked for this network, 0 to 1.
    ``compiled_plan_count`` plans, one for each signature of shapes, took ``compile_s`` in all.
    ``batch_sizes`` says how many runs came with which length of the first dimension, taken from the
    first input that has dimensions; empty where none has. From 1024 lengths on, new ones count as
    the power of two below.
    """

    finished_request_count: int
    failed_request_count: int
    cancelled_request_count: int
    expired_request_count: int
    aborted_request_count: int
    waiting_run_count: int
    running_run_count: int
    elapsed_s: float
    stages: tuple[StageStatistics, ...]
    busy_shares: Mapping[str, float]
    compiled_plan_count: int = 0
    compile_s: float = 0.0
    refused_request_count: int = 0
    batch_sizes: Mapping[int, int] = field(default_factory=dict)


def statistics_of(tally: StageTally) -> StageStatistics:
    """Make the numbers of a stage from its tally; times in seconds."""
    count = max(1, tally.count)
    return StageStatistics(
        stage=tally.stage,
        executor=tally.executor,
        count=tally.count,
        busy_s=tally.busy_ns / 1e9,
        mean_service_s=tally.busy_ns / count / 1e9,
        mean_queue_s=tally.queued_ns / count / 1e9,
        service=tally.service,
        queue=tally.queue,
    )
