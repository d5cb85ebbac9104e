"""How many streams a network gets on the CPU, and how many threads each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...executors import CpuAllowance, StreamsConfig, part_of_allowance
from ...runtime.properties.properties import (
    DEVICE_ID,
    DEVICE_SHARE,
    INFERENCE_NUM_THREADS,
    stream_count,
)
from .properties import ENABLE_CPU_PINNING

__all__ = ["share_of", "streams_config"]


def streams_config(
    config: Mapping[str, Any],
    allowance: CpuAllowance,
    device: str,
    *,
    can_follow_quota: bool = False,
) -> StreamsConfig:
    """Divide the allowed CPUs, or INFERENCE_NUM_THREADS threads, among the streams.

    THROUGHPUT gets a stream of one thread for each CPU, LATENCY one stream with all of them, and
    NUM_STREAMS what it says; each stream has at least one thread. A part of a CPU, which a quota
    may add, is worth a stream; it is one thread more in a team if that has it for as long as the
    quota lasts. A share of the device has CPUs of its own.
    """
    number, count = share_of(config, allowance)
    if count > 1:
        allowance = part_of_allowance(allowance, number, count)
    given = int(config[INFERENCE_NUM_THREADS.key])
    streams = stream_count(config, given or allowance.count)
    threads = (given or (allowance.count if can_follow_quota else allowance.whole_count)) // streams
    made = StreamsConfig(device, streams, max(1, threads), bool(config[ENABLE_CPU_PINNING.key]))
    return replace(made, cpus=allowance.cpus) if count > 1 else made


def share_of(config: Mapping[str, Any], allowance: CpuAllowance) -> tuple[int, int]:
    """Return the number of a network's share of the CPUs, from 0 on, and how many shares there are.

    Without DEVICE_SHARE, CPU.0 is all of them, and CPU.1 the second one alone.
    """
    number, _, count = str(config[DEVICE_SHARE.key]).partition("/")
    if count:
        return int(number), int(count)
    own = int(config[DEVICE_ID.key] or 0)
    return (own, len(allowance.cpus)) if own else (0, 1)
