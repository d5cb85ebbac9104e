"""What the benchmarks of raw costs share: device time, pinned memory, small kernels."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

__all__ = ["add_one", "captured", "device_us", "host_us", "pinned", "spin"]

ADD_ONE = """
extern "C" __global__ void add_one(float *x, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] = x[i] * 0.999f + 1.0f;
}
"""
SPIN = """
extern "C" __global__ void spin(long long ns, volatile long long *word, long long value) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < ns);
    if (word) { *word = value; __threadfence_system(); }
}
"""


def add_one() -> Any:
    """Build a kernel (x: float*, count: int) that changes every element."""
    import cupy

    return cupy.RawKernel(ADD_ONE, "add_one")


def spin() -> Any:
    """Build a kernel (ns, word, value) that takes so long, then writes ``word`` unless it is 0."""
    import cupy

    return cupy.RawKernel(SPIN, "spin")


def device_us(stream: Any, enqueue: Callable[[], Any], count: int, rounds: int) -> float:
    """Give the median over the rounds of the device's time for one of ``count`` enqueued."""
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(3):
        enqueue()
    taken_us = []
    for _ in range(rounds):
        begin.record(stream)
        for _ in range(count):
            enqueue()
        end.record(stream)
        end.synchronize()
        taken_us.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3 / count)
    return median(taken_us)


def host_us(
    enqueue: Callable[[], Any], settle: Callable[[], Any], count: int, rounds: int
) -> float:
    """Give the median over the rounds of the host's time for one of ``count`` enqueued.

    ``settle`` waits for the device, untimed. The driver's queue has room for about 1000.
    """
    enqueue()
    settle()
    taken_us = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        for _ in range(count):
            enqueue()
        taken_us.append((time.perf_counter() - began_s) / count * 1e6)
        settle()
    return median(taken_us)


def pinned(size_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Take pinned memory as an array, which keeps it."""
    import cupy

    return np.frombuffer(cupy.cuda.alloc_pinned_memory(size_bytes), np.uint8, size_bytes)


def captured(stream: Any, enqueue: Callable[[], Any]) -> Any:
    """Capture what is enqueued on the stream, once it has been enqueued for real."""
    enqueue()
    stream.synchronize()
    stream.begin_capture()
    try:
        enqueue()
    finally:
        graph = stream.end_capture()
    graph.upload(stream)
    return graph
