"""What several networks did, added up, so that numbers of closed ones are not lost. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from .copied_bytes import CopyCounts, merged_counts
from .durations import NO_DURATIONS, Durations
from .recorder import StageTally
from .statistics import (
    OUTCOMES,
    DeviceStatistics,
    NetworkStatistics,
    PlanStatistics,
    StageStatistics,
)

__all__ = ["Numbers", "merged_durations", "merged_parts", "merged_tallies"]


@dataclass(frozen=True)
class Numbers:
    """What networks did, as far as the statistics of a whole tell it."""

    tallies: tuple[StageTally, ...] = ()
    copied_bytes: CopyCounts = field(default_factory=dict)
    plans: PlanStatistics = field(default_factory=PlanStatistics)
    parts: tuple[NetworkStatistics, ...] = ()

    @classmethod
    def total(cls, all_numbers: Iterable[Numbers]) -> Numbers:
        """Add up what several networks did."""
        listed = list(all_numbers)
        return cls(
            tuple(merged_tallies(tally for numbers in listed for tally in numbers.tallies)),
            merged_counts(numbers.copied_bytes for numbers in listed),
            PlanStatistics.total(numbers.plans for numbers in listed),
            merged_parts(part for numbers in listed for part in numbers.parts),
        )

    def of_closed(self) -> Numbers:
        """Return what stays when they are closed: nothing waits or runs, and no plan is kept."""
        return replace(self, plans=_of_closed(self.plans), parts=tuple(map(_closed, self.parts)))


def merged_durations(parts: Iterable[Durations]) -> Durations:
    """Return all of these, as if they had been counted together."""
    found = [part for part in parts if part.count]
    if len(found) < 2:
        return found[0] if found else NO_DURATIONS
    buckets: Counter[float] = Counter()
    for part in found:
        buckets.update(dict(part.buckets))
    return Durations(
        count=sum(part.count for part in found),
        sum_s=sum(part.sum_s for part in found),
        max_s=max(part.max_s for part in found),
        buckets=tuple(sorted(buckets.items())),
    )


def merged_tallies(tallies: Iterable[StageTally]) -> list[StageTally]:
    """Add up what has the same stage and executor, in the order in which these come first."""
    by_place: dict[tuple[str, str], list[StageTally]] = {}
    for tally in tallies:
        by_place.setdefault((tally.stage, tally.executor), []).append(tally)
    return [_merged_tally(same) for same in by_place.values()]


def _merged_tally(same: Sequence[StageTally]) -> StageTally:
    if len(same) == 1:
        return same[0]
    return replace(
        same[0],
        lane_count=max(tally.lane_count for tally in same),  # lanes of one executor
        count=sum(tally.count for tally in same),
        busy_ns=sum(tally.busy_ns for tally in same),
        queued_ns=sum(tally.queued_ns for tally in same),
        service=merged_durations(tally.service for tally in same),
        queue=merged_durations(tally.queue for tally in same),
    )


def _of_closed(plans: PlanStatistics) -> PlanStatistics:
    return replace(plans, kept_count=0, kept_bytes=0)


def _closed(part: NetworkStatistics) -> NetworkStatistics:
    return replace(
        part,
        waiting_run_count=0,
        running_run_count=0,
        plans=_of_closed(part.plans),
        parts=tuple(map(_closed, part.parts)),
        devices=tuple(
            [replace(item, is_in_use=False, running_run_count=0) for item in part.devices]
        ),
    )


def merged_parts(parts: Iterable[NetworkStatistics]) -> tuple[NetworkStatistics, ...]:
    """Add up networks of the same name, device and copy, in the order in which these come first.

    What cannot be added up, such as a device's speed, is the first one's.
    """
    by_label: dict[tuple[str, str, int], list[NetworkStatistics]] = {}
    for part in parts:
        by_label.setdefault((part.network, part.device, part.copy), []).append(part)
    return tuple(reduce(_merged_pair, same) for same in by_label.values())


def _merged_pair(one: NetworkStatistics, other: NetworkStatistics) -> NetworkStatistics:
    both = one, other
    elapsed_s = one.elapsed_s + other.elapsed_s
    outcomes = dict.fromkeys((*one.latencies, *other.latencies))
    executors = dict.fromkeys((*one.busy_shares, *other.busy_shares))
    busy_s = {
        name: sum(part.busy_shares.get(name, 0.0) * part.elapsed_s for part in both)
        for name in executors
    }
    return replace(
        one,
        **_sums(one, other, [*(f"{name}_request_count" for name in OUTCOMES), *_RUN_COUNTS]),
        latencies={
            outcome: merged_durations(part.latencies.get(outcome, NO_DURATIONS) for part in both)
            for outcome in outcomes
        },
        slot_wait=merged_durations(part.slot_wait for part in both),
        elapsed_s=elapsed_s,
        stages=_merged_stages((*one.stages, *other.stages)),
        busy_shares={name: taken_s / (elapsed_s or 1.0) for name, taken_s in busy_s.items()},
        plans=PlanStatistics.total(part.plans for part in both),
        batch_sizes=_merged_sizes(one.batch_sizes, other.batch_sizes),
        group_sizes=_merged_sizes(one.group_sizes, other.group_sizes),
        copied_bytes=merged_counts(part.copied_bytes for part in both),
        parts=merged_parts((*one.parts, *other.parts)),
        devices=_merged_devices((*one.devices, *other.devices)),
    )


_RUN_COUNTS = ("waiting_run_count", "running_run_count")
_DEVICE_COUNTS = ("run_count", "running_run_count", "failure_count", "moved_run_count")


def _sums(one: object, other: object, keys: Sequence[str]) -> dict[str, Any]:
    return {key: getattr(one, key) + getattr(other, key) for key in keys}


def _merged_devices(devices: Iterable[DeviceStatistics]) -> tuple[DeviceStatistics, ...]:
    by_name: dict[str, DeviceStatistics] = {}
    for device in devices:
        known = by_name.get(device.device)
        if known is not None:
            device = replace(known, **_sums(known, device, _DEVICE_COUNTS))
        by_name[device.device] = device
    return tuple(by_name.values())


def _merged_stages(stages: Iterable[StageStatistics]) -> tuple[StageStatistics, ...]:
    by_place: dict[tuple[str, str], StageStatistics] = {}
    for stage in stages:
        place = stage.stage, stage.executor
        known = by_place.get(place)
        by_place[place] = stage if known is None else _merged_stage(known, stage)
    return tuple(by_place.values())


def _merged_stage(one: StageStatistics, other: StageStatistics) -> StageStatistics:
    count, busy_s = one.count + other.count, one.busy_s + other.busy_s
    queued_s = one.mean_queue_s * one.count + other.mean_queue_s * other.count
    return replace(
        one,
        count=count,
        busy_s=busy_s,
        mean_service_s=busy_s / max(1, count),
        mean_queue_s=queued_s / max(1, count),
        service=merged_durations((one.service, other.service)),
        queue=merged_durations((one.queue, other.queue)),
    )


def _merged_sizes(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return dict(sorted((Counter(one) + Counter(other)).items()))
