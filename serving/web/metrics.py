"""Metrics of served models in Prometheus' format, with the names that Triton's dashboards know."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..protocol.statistics import ModelCounts, counts_of
from ..repository.models import Repository

__all__ = ["CONTENT_TYPE", "metrics_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ("model", "version")

_COUNTERS = (
    ("nv_inference_request_success", "Requests that have a result.", "success", "count"),
    ("nv_inference_request_failure", "Requests that have failed.", "fail", "count"),
    ("nv_inference_request_duration_us", "From arrival to result, in all.", "success", "us"),
    ("nv_inference_queue_duration_us", "Waiting for a slot, in all.", "queue", "us"),
    ("nv_inference_compute_input_duration_us", "Bringing inputs.", "compute_input", "us"),
    ("nv_inference_compute_infer_duration_us", "Computing.", "compute_infer", "us"),
    ("nv_inference_compute_output_duration_us", "Fetching outputs.", "compute_output", "us"),
)


def metrics_text(repository: Repository) -> bytes:
    """Return every metric of every version that serves, at this moment."""
    registry = CollectorRegistry()
    registry.register(_ServedCollector(repository))
    return generate_latest(registry)


class _ServedCollector(Collector):
    """Reads the networks' own counters when it is asked; requests pay nothing for it."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        rows = [
            ((served.model, served.version), counts_of(served.network.statistics()))
            for served in self._repository.served()
        ]
        for name, text, duration, unit in _COUNTERS:
            yield _counter(
                name, text, [(place, _value(row, duration, unit)) for place, row in rows]
            )
        yield _counter(
            "nv_inference_count",
            "Requests that have a result; one counts as one inference.",
            [(place, row.inference_count) for place, row in rows],
        )
        yield _counter(
            "nv_inference_exec_count",
            "Runs of the device.",
            [(place, row.execution_count) for place, row in rows],
        )
        cancelled = CounterMetricFamily(
            "aioinfer_request_cancelled",
            "Requests that ended with their clients.",
            labels=_LABELS,
        )
        for place, row in rows:
            cancelled.add_metric(place, row.cancelled_count)
        yield cancelled
        pending = GaugeMetricFamily(
            "nv_inference_pending_request_count", "Requests that wait for a slot.", labels=_LABELS
        )
        for place, row in rows:
            pending.add_metric(place, row.pending_count)
        yield pending
        if self._repository.retried_count is not None:
            yield CounterMetricFamily(
                "aioinfer_retried",
                "Requests that went to another replica as theirs had ended.",
                self._repository.retried_count,
            )
        ready = GaugeMetricFamily(
            "aioinfer_model_ready", "1 for a version that serves, else 0.", labels=_LABELS
        )
        for state in self._repository.states():
            ready.add_metric((state.model, state.version), state.state == "READY")
        yield ready


def _value(row: ModelCounts, duration: str, unit: str) -> int:
    counted = getattr(row, duration)
    value: int = counted.count if unit == "count" else counted.ns // 1000
    return value


def _counter(name: str, text: str, rows: list[tuple[tuple[str, str], int]]) -> Metric:
    """Make a counter whose samples have Triton's names, which do not end in _total."""
    family = CounterMetricFamily(name, text, labels=_LABELS)
    for place, value in rows:
        family.add_metric(place, value)
    family.samples = [sample._replace(name=name) for sample in family.samples]
    return family
