"""How many streams a network gets on the CPU, and how many threads each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...executors import CpuAllowance, StreamsConfig
from ...runtime.properties.properties import INFERENCE_NUM_THREADS, stream_count
from .properties import ENABLE_CPU_PINNING

__all__ = ["streams_config"]


def streams_config(
    config: Mapping[str, Any], allowance: CpuAllowance, device: str
) -> StreamsConfig:
    """Divide the allowed CPUs, or INFERENCE_NUM_THREADS threads, among the streams.

    THROUGHPUT gets a stream of one thread for each CPU, LATENCY one stream with all of them, and
    NUM_STREAMS what it says; each stream has at least one thread. A part of a CPU, which a quota
    may add, is worth a stream but no member of a team.
    """
    given = int(config[INFERENCE_NUM_THREADS.key])
    streams = stream_count(config, given or allowance.count)
    threads = (given or allowance.whole_count) // streams
    return StreamsConfig(device, streams, max(1, threads), bool(config[ENABLE_CPU_PINNING.key]))
