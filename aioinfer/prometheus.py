"""Metrics of all networks of a Core for Prometheus; wants the extra aioinfer[prometheus]."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

from .errors import PropertyError
from .runtime.devices.core import Core
from .runtime.tracing.durations import Durations
from .runtime.tracing.statistics import OUTCOMES, NetworkStatistics

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "aioinfer.prometheus wants prometheus-client; pip install 'aioinfer[prometheus]'"
    ) from error

__all__ = ["BUCKETS_S", "NetworkCollector"]

BUCKETS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Upper bounds of the histograms of times, in seconds; infinity is added."""

BATCH_BUCKETS = tuple([1 << power for power in range(11)])

_NETWORK = ("network", "device", "copy")

_numbers: WeakKeyDictionary[Core, str] = WeakKeyDictionary()
_numbering = threading.Lock()
_PART = "Of each network that a network such as HETERO's is made of: "


class NetworkCollector(Collector):
    """Gives Prometheus the numbers of a Core's open networks, read when they are scraped.

    Requests pay nothing for it. Series carry ``network``, ``device`` and ``copy``, which tells
    networks of one name and device apart, as the old and the new one of a reload, and ``core``,
    which tells a process's Cores apart: "1" for the first that has a collector. ``buckets_s`` are
    the upper bounds of times, in seconds, rising. Thread-safe. Raises PropertyError.

    ```python
    from prometheus_client import CollectorRegistry, generate_latest

    from aioinfer.prometheus import NetworkCollector

    with aioinfer.Core() as core, core.load_network("model.onnx", "CPU", name="digits") as network:
        registry = CollectorRegistry()
        registry.register(NetworkCollector(core))
        network.create_infer_request().infer_sync(np.zeros((1, 1, 8, 8), np.float32))
        print(generate_latest(registry).decode())
    ```
    """

    def __init__(self, core: Core, buckets_s: Sequence[float] = BUCKETS_S) -> None:
        self._core, self._number = core, _number_of(core)
        self._bounds_s = (*map(float, buckets_s), math.inf)
        pairs = zip((0.0, *self._bounds_s), self._bounds_s, strict=False)
        if not all(lower < upper for lower, upper in pairs):
            raise PropertyError(
                f"buckets_s is {tuple(buckets_s)}; give rising finite numbers of seconds above 0",
                "buckets_s",
                value=tuple(buckets_s),
            )

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering reads no numbers."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, of one picture of the Core. Raises ClosedError in a forked child."""
        for metric in self._metrics():
            metric.samples = [
                sample._replace(labels={"core": self._number, **sample.labels})
                for sample in metric.samples
            ]
            yield metric

    def _metrics(self) -> Iterator[Metric]:
        picture = self._core.statistics()
        networks = picture.networks
        yield from _requests(networks, self._bounds_s)
        yield from _runs("aioinfer", "", networks, self._bounds_s)
        parts = [part for network in networks for part in network.parts]
        yield from _runs("aioinfer_part", _PART, parts, self._bounds_s)
        yield from _stages(networks, self._bounds_s)
        yield from _copies(networks)
        yield from _batches(networks)
        yield from _plans(networks)
        yield from _members(networks)
        queued = GaugeMetricFamily(
            "aioinfer_queued_tasks",
            "Tasks that wait for a thread of an executor, which the Core's networks share.",
            labels=("executor",),
        )
        for executor, count in picture.queued_task_counts.items():
            queued.add_metric((executor,), count)
        yield queued


def _number_of(core: Core) -> str:
    """Return the lowest number that no other living Core has that has a collector."""
    with _numbering:
        if core not in _numbers:
            taken = set(_numbers.values())
            _numbers[core] = next(n for n in map(str, itertools.count(1)) if n not in taken)
        return _numbers[core]


def _requests(networks: Sequence[NetworkStatistics], bounds_s: Sequence[float]) -> Iterator[Metric]:
    labels = (*_NETWORK, "outcome")
    counts = CounterMetricFamily(
        "aioinfer_requests", "Requests whose callers were answered, by outcome.", labels=labels
    )
    times = HistogramMetricFamily(
        "aioinfer_request_duration_seconds",
        "From a request's arrival to its answer, by outcome.",
        labels=labels,
    )
    for network in networks:
        for outcome in OUTCOMES:  # each from the start, so that a rate sees the first of its kind
            count = getattr(network, f"{outcome}_request_count")
            counts.add_metric((*_labels(network), outcome), count)
        for outcome, latency in network.latencies.items():
            _add_times(times, (*_labels(network), outcome), latency, bounds_s)
    yield counts
    yield times


def _runs(
    prefix: str, of: str, networks: Sequence[NetworkStatistics], bounds_s: Sequence[float]
) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        f"{prefix}_waiting_runs", f"{of}Runs that wait for a slot now.", labels=_NETWORK
    )
    running = GaugeMetricFamily(
        f"{prefix}_running_runs", f"{of}Runs that have a slot now.", labels=_NETWORK
    )
    waits = HistogramMetricFamily(
        f"{prefix}_slot_wait_seconds",
        f"{of}How long runs waited for a slot; 0 where one was idle.",
        labels=_NETWORK,
    )
    for network in networks:
        labels = _labels(network)
        waiting.add_metric(labels, network.waiting_run_count)
        running.add_metric(labels, network.running_run_count)
        _add_times(waits, labels, network.slot_wait, bounds_s)
    yield waiting
    yield running
    yield waits


def _stages(networks: Sequence[NetworkStatistics], bounds_s: Sequence[float]) -> Iterator[Metric]:
    labels = (*_NETWORK, "stage", "executor")
    service = HistogramMetricFamily(
        "aioinfer_stage_duration_seconds", "How long a stage ran on its executor.", labels=labels
    )
    queue = HistogramMetricFamily(
        "aioinfer_stage_queue_seconds",
        "How long a stage waited in its executor's queue.",
        labels=labels,
    )
    for network in networks:
        for stage in network.stages:
            place = (*_labels(network), stage.stage, stage.executor)
            _add_times(service, place, stage.service, bounds_s)
            _add_times(queue, place, stage.queue, bounds_s)
    yield service
    yield queue


def _members(networks: Sequence[NetworkStatistics]) -> Iterator[Metric]:
    labels = (*_NETWORK, "member")
    runs = CounterMetricFamily(
        "aioinfer_member_runs",
        "Runs that each device was given by a network that shares them out (MULTI, AUTO).",
        labels=labels,
    )
    moved = CounterMetricFamily(
        "aioinfer_member_moved_runs",
        "Runs that have failed on a device and went on to another one.",
        labels=labels,
    )
    failures = CounterMetricFamily(
        "aioinfer_member_failures", "How often a device was found to fail.", labels=labels
    )
    in_use = GaugeMetricFamily(
        "aioinfer_member_in_use", "1 for a device that gets runs now, else 0.", labels=labels
    )
    for network in networks:
        for member in network.devices:
            place = (*_labels(network), member.device)
            runs.add_metric(place, member.run_count)
            moved.add_metric(place, member.moved_run_count)
            failures.add_metric(place, member.failure_count)
            in_use.add_metric(place, member.is_in_use)
    yield from (runs, moved, failures, in_use)


def _copies(networks: Sequence[NetworkStatistics]) -> Iterator[Metric]:
    copied = CounterMetricFamily(
        "aioinfer_copied_bytes",
        "Bytes that stages have copied for requests: upload, download, device, host, or "
        "later_download of outputs that stayed on their device.",
        labels=(*_NETWORK, "stage", "kind"),
    )
    for network in networks:
        for stage, counts in network.copied_bytes.items():
            for kind, size_bytes in counts.items():
                copied.add_metric((*_labels(network), stage, kind), size_bytes)
    yield copied


def _batches(networks: Sequence[NetworkStatistics]) -> Iterator[Metric]:
    rows = HistogramMetricFamily(
        "aioinfer_batch_rows",
        "The first dimension of what runs were given; of great ones the power of two below.",
        labels=_NETWORK,
    )
    groups = HistogramMetricFamily(
        "aioinfer_group_requests",
        "How many requests shared a run of the device, where they may (BATCH).",
        labels=_NETWORK,
    )
    for network in networks:
        _add_sizes(rows, network, network.batch_sizes)
        _add_sizes(groups, network, network.group_sizes)
    yield rows
    yield groups


def _add_sizes(
    family: HistogramMetricFamily, network: NetworkStatistics, sizes: Mapping[int, int]
) -> None:
    if not sizes:
        return
    within = [
        (str(float(bound)), sum(count for size, count in sizes.items() if size <= bound))
        for bound in BATCH_BUCKETS
    ]
    total = sum(size * count for size, count in sizes.items())
    family.add_metric(_labels(network), [*within, ("+Inf", sum(sizes.values()))], total)


def _plans(networks: Sequence[NetworkStatistics]) -> Iterator[Metric]:
    kept = GaugeMetricFamily(
        "aioinfer_plans", "Compiled plans that are kept, by signature of shapes.", labels=_NETWORK
    )
    size = GaugeMetricFamily(
        "aioinfer_plan_bytes", "Memory of the plans that are kept, where known.", labels=_NETWORK
    )
    built = CounterMetricFamily(
        "aioinfer_plan_builds", "Plans that were compiled.", labels=_NETWORK
    )
    took = CounterMetricFamily(
        "aioinfer_plan_build_seconds", "How long compiling plans took.", labels=_NETWORK
    )
    lookups = CounterMetricFamily(
        "aioinfer_plan_lookups",
        "Runs that asked for a plan: it was there or in the making (hit), or was built (miss).",
        labels=(*_NETWORK, "result"),
    )
    evicted = CounterMetricFamily(
        "aioinfer_plan_evictions", "Plans that made room for others.", labels=_NETWORK
    )
    for network in networks:
        labels, plans = _labels(network), network.plans
        kept.add_metric(labels, plans.kept_count)
        size.add_metric(labels, plans.kept_bytes)
        built.add_metric(labels, plans.build_count)
        took.add_metric(labels, plans.build_s)
        lookups.add_metric((*labels, "hit"), plans.hit_count)
        lookups.add_metric((*labels, "miss"), plans.miss_count)
        evicted.add_metric(labels, plans.eviction_count)
    yield from (kept, size, built, took, lookups, evicted)


def _labels(network: NetworkStatistics) -> tuple[str, str, str]:
    return network.network, network.device, str(network.copy)


def _add_times(
    family: HistogramMetricFamily,
    labels: Sequence[str],
    times: Durations,
    bounds_s: Sequence[float],
) -> None:
    buckets = [
        ("+Inf" if bound_s == math.inf else str(bound_s), times.count_within(bound_s))
        for bound_s in bounds_s
    ]
    family.add_metric(labels, buckets, times.sum_s)
