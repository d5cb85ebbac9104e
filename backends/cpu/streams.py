"""How many streams a network gets on the CPU, and how many threads each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...executors import StreamsConfig
from ...runtime.properties import INFERENCE_NUM_THREADS, stream_count
from .properties import ENABLE_CPU_PINNING

__all__ = ["streams_config"]


def streams_config(config: Mapping[str, Any], cpu_count: int, device: str) -> StreamsConfig:
    """Divide the CPUs, or INFERENCE_NUM_THREADS of them, among the streams.

    THROUGHPUT gets a stream of one thread for each CPU, LATENCY one stream with all of them, and
    NUM_STREAMS what it says; each stream has at least one thread.
    """
    threads = int(config[INFERENCE_NUM_THREADS.key]) or cpu_count
    streams = stream_count(config, threads)
    return StreamsConfig(
        device, streams, max(1, threads // streams), bool(config[ENABLE_CPU_PINNING.key])
    )
