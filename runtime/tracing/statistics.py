"""What a network has done so far, as numbers. See docs/observing.md for what to do with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field

from .durations import NO_DURATIONS, Durations
from .recorder import StageTally

__all__ = [
    "OUTCOMES",
    "CoreStatistics",
    "DeviceStatistics",
    "NetworkStatistics",
    "PlanStatistics",
    "StageStatistics",
    "statistics_of",
]

OUTCOMES = ("finished", "failed", "cancelled", "expired", "aborted", "refused")
"""How a request can end; ``NetworkStatistics`` says what each means."""


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
class PlanStatistics:
    """The compiled plans of a network, one for each signature of shapes.

    ``kept_count`` are there now; ``build_count``, those included that were dropped and built
    again, took ``build_s`` in all. Of the runs that asked for one ``hit_count`` found it, be it in
    the making, and ``miss_count`` had it built; ``eviction_count`` plans made room for others.
    ``kept_bytes`` is what those kept take, as far as the device knows.
    """

    kept_count: int = 0
    build_count: int = 0
    build_s: float = 0.0
    hit_count: int = 0
    miss_count: int = 0
    eviction_count: int = 0
    kept_bytes: int = 0

    @classmethod
    def total(cls, parts: Iterable[PlanStatistics]) -> PlanStatistics:
        """Add up the numbers of several networks."""
        rows = [astuple(part) for part in (cls(), *parts)]
        return cls(*map(sum, zip(*rows, strict=True)))


@dataclass(frozen=True)
class DeviceStatistics:
    """One of several devices among which a network shares out its runs.

    ``is_in_use``: it gets runs; otherwise it has failed, or is not among those to use.
    ``run_count`` runs were given to it, of which it has ``running_run_count`` now. It was taken out
    ``failure_count`` times (tries while it was out included), and ``moved_run_count`` runs went on
    to another device. ``mean_service_s`` is what is expected of it; None before it was measured.
    """

    device: str
    is_in_use: bool
    run_count: int
    running_run_count: int
    failure_count: int
    moved_run_count: int
    mean_service_s: float | None


@dataclass(frozen=True)
class NetworkStatistics:
    """A frozen picture of a network, which ``network``, ``device`` and ``copy`` tell from others.

    It is of requests: what a warm-up runs is in ``plans``, and in nothing else.

    ``copy`` counts the open networks of a Core that have the same name and device: 1 for the first,
    2 for one that was loaded while the first was open; a number is free again when its network is
    closed.

    Requests by outcome: ``finished`` with a result, ``failed`` with an error, ``cancelled`` by the
    caller, ``expired`` by a deadline, ``aborted`` by a close, ``refused`` by MAX_QUEUED_REQUESTS;
    counted before the caller is answered, while the device may not be done yet. One that comes to a
    closed network is not counted.
    ``latencies`` says by outcome how long they took, from their arrival to the answer, and
    ``slot_wait`` how long their runs waited for a slot before: 0 s where one was idle.
    ``waiting`` have no slot yet, ``running`` have one. ``busy_shares`` says for each executor in
    which share of ``elapsed_s`` (since the first request) its lanes worked for it, 0 to 1.
    ``parts`` are the networks that this one is made of, where it is (HETERO): what waits for slots
    and devices there. They have no requests, and ``stages`` and ``plans`` of the whole include
    theirs. ``devices`` are those among which it shares out its runs, where it does (MULTI).
    ``batch_sizes`` says how many runs came with which length of the first dimension, taken from the
    first input that has dimensions; empty where none has. From 1024 lengths on, new ones count as
    the power of two below. ``copied_bytes`` sums up by stage what it has copied, by kind: upload,
    download, device, host, and later_download for outputs that stayed on their device and were read
    on the host afterwards. ``group_sizes`` says how many runs of the device were of how many
    requests, where requests share them (BATCH); their rows are the ``batch_sizes`` of its part, and
    ``slot_wait`` is how long requests waited for them.
    """

    network: str
    device: str
    copy: int = 1
    finished_request_count: int = 0
    failed_request_count: int = 0
    cancelled_request_count: int = 0
    expired_request_count: int = 0
    aborted_request_count: int = 0
    refused_request_count: int = 0
    latencies: Mapping[str, Durations] = field(default_factory=dict)
    slot_wait: Durations = NO_DURATIONS
    waiting_run_count: int = 0
    running_run_count: int = 0
    elapsed_s: float = 0.0
    stages: tuple[StageStatistics, ...] = ()
    busy_shares: Mapping[str, float] = field(default_factory=dict)
    plans: PlanStatistics = PlanStatistics()
    batch_sizes: Mapping[int, int] = field(default_factory=dict)
    group_sizes: Mapping[int, int] = field(default_factory=dict)
    copied_bytes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    parts: tuple[NetworkStatistics, ...] = ()
    devices: tuple[DeviceStatistics, ...] = ()

    @property
    def latency(self) -> Durations:
        """How long the requests took that have a result."""
        return self.latencies.get("finished", NO_DURATIONS)


@dataclass(frozen=True)
class CoreStatistics:
    """A frozen picture of a Core: its open networks, in the order in which they were loaded.

    ``queued_task_counts`` says how many tasks wait now for a thread of each executor that the
    networks share, by its name; executors of one name are added up.
    """

    networks: tuple[NetworkStatistics, ...]
    queued_task_counts: Mapping[str, int]


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
