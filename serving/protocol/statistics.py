"""The statistics extension: what a network has done, in the protocol's words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ...runtime.tracing.durations import Durations
from ...runtime.tracing.statistics import NetworkStatistics

__all__ = ["Counted", "ModelCounts", "counts_of", "statistics_entry"]

_INPUT_STAGES = frozenset({"preprocess", "upload"})
_OUTPUT_STAGES = frozenset({"download", "postprocess"})


@dataclass(frozen=True)
class Counted:
    """How often something happened, and how long it took in all."""

    count: int = 0
    ns: int = 0

    @classmethod
    def of(cls, durations: Durations) -> Counted:
        """Sum up durations."""
        return cls(durations.count, round(durations.sum_s * 1e9))

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.count + other.count, self.ns + other.ns)


@dataclass(frozen=True)
class ModelCounts:
    """What a version has done since it was loaded.

    A request counts as one inference, whatever its rows; ``execution_count`` are runs of the
    device, fewer where requests share them. ``queue`` is the wait for a slot.
    """

    inference_count: int
    execution_count: int
    pending_count: int
    cancelled_count: int
    success: Counted
    fail: Counted
    queue: Counted
    compute_input: Counted
    compute_infer: Counted
    compute_output: Counted


DURATION_NAMES = tuple(
    [field.name for field in fields(ModelCounts) if not field.name.endswith("_count")]
)
"""The durations of the protocol's document, which are those of ModelCounts."""


def counts_of(statistics: NetworkStatistics) -> ModelCounts:
    """Count what a network's statistics say. Cancelled requests have neither succeeded nor failed.

    Stages that neither bring inputs nor fetch outputs are the computing. Each request that
    succeeded counts as one of each of the three, as Triton's tools want, whatever stages it had.
    """
    failed = [
        Counted.of(durations)
        for outcome, durations in statistics.latencies.items()
        if outcome in ("failed", "expired", "aborted", "refused")
    ]
    busy_s = {"input": 0.0, "infer": 0.0, "output": 0.0}
    for stage in statistics.stages:
        kind = (
            "input"
            if stage.stage in _INPUT_STAGES
            else "output"
            if stage.stage in _OUTPUT_STAGES
            else "infer"
        )
        busy_s[kind] += stage.busy_s
    done = statistics.finished_request_count
    staged = {kind: Counted(done, round(each * 1e9)) for kind, each in busy_s.items()}
    return ModelCounts(
        inference_count=done,
        execution_count=sum(statistics.group_sizes.values()) or done,
        pending_count=statistics.waiting_run_count,
        cancelled_count=statistics.cancelled_request_count,
        success=Counted(done, Counted.of(statistics.latency).ns),
        fail=sum(failed, Counted()),
        queue=Counted.of(statistics.slot_wait),
        compute_input=staged["input"],
        compute_infer=staged["infer"],
        compute_output=staged["output"],
    )


def statistics_entry(
    model: str, version: str, last_inference_ms: int, counts: ModelCounts
) -> Mapping[str, object]:
    """Return one entry of the document ``model_stats``.

    ``batch_stats`` is empty: how long runs of each batch took is not kept.
    """
    durations: dict[str, Counted] = {name: getattr(counts, name) for name in DURATION_NAMES}
    return {
        "name": model,
        "version": version,
        "last_inference": last_inference_ms,
        "inference_count": counts.inference_count,
        "execution_count": counts.execution_count,
        "inference_stats": {
            name: {"count": counted.count, "ns": counted.ns} for name, counted in durations.items()
        },
        "batch_stats": [],
    }
