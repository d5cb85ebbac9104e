"""How long after a kernel's end a waiting thread goes on, and what the waiting costs the processor.

    python benchmarks/gpu/completion.py

The kernel spins for a fixed time and then writes a word of pinned memory. A thread that reads that
word all the time sees the end first; the other ways are given as how much later they come: a
blocking event, a spinning event, polling the event, a word that the stream writes behind the
kernel, and a blocking event whose thread wakes an asyncio loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from measuring import Settings, cupy_reason, percentile, run_benchmark
from predictions import WAKE_US
from raw_cuda import pinned, spin
from reporting import Report

KERNEL_NS, LONG_NS = 200_000, 5_000_000
TURNS = 40
"""Waits of each way in a round."""
POLLED = "polling the kernel's word"
Wait = Callable[[int], None]


@dataclass
class Bench:
    """A stream with a kernel that spins, and the word that it writes: a number that grows."""

    stream: Any
    kernel: Any
    word: np.ndarray[Any, np.dtype[np.int64]]
    written: np.ndarray[Any, np.dtype[np.int64]]
    number: int = 0

    def launch(self, took_ns: int) -> None:
        """Enqueue the kernel."""
        self.number += 1
        arguments = (np.int64(took_ns), np.uint64(self.word.ctypes.data), np.int64(self.number))
        self.kernel((1,), (1,), arguments, stream=self.stream)


def measure(report: Report, settings: Settings) -> None:
    import cupy

    words = [pinned(8).view(np.int64) for _ in range(2)]
    for word in words:
        word[:] = 0
    bench = Bench(cupy.cuda.Stream(non_blocking=True), spin(), *words)
    ways = ways_of(report, bench)
    wakes_us: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(settings.rounds):
        for name in list(ways) if number % 2 else reversed(ways):
            wakes_us[name] += [wake_us(bench, ways[name]) for _ in range(TURNS)]
    first_us = median(wakes_us[POLLED])
    report.add(f"{POLLED}, from launch, less the kernel", first_us, "us")
    for name, taken_us in wakes_us.items():
        if name == POLLED:
            continue
        report.add(f"{name}, later than that", median(taken_us) - first_us, "us", WAKE_US.get(name))
        report.add(f"{name}, the 99th of 100", percentile(taken_us, 0.99) - first_us, "us")
    for name, wait in ways.items():
        report.add(f"{name}, of a core while waiting", busy_share(bench, wait) * 100, "% of a core")
    measure_loop(report, settings, bench, first_us)


def wake_us(bench: Bench, wait: Wait) -> float:
    """Give the time from the launch until the thread goes on, less the kernel's."""
    bench.stream.synchronize()
    began_ns = time.perf_counter_ns()
    wait(KERNEL_NS)
    return (time.perf_counter_ns() - began_ns - KERNEL_NS) / 1e3


def busy_share(bench: Bench, wait: Wait) -> float:
    """Give how much of a core the thread uses while it waits for a long kernel."""
    bench.stream.synchronize()
    began_s, used_s = time.perf_counter(), time.thread_time()
    for _ in range(5):
        wait(LONG_NS)
    return (time.thread_time() - used_s) / (time.perf_counter() - began_s)


def ways_of(report: Report, bench: Bench) -> dict[str, Wait]:
    """List the ways to wait, each with its launch."""
    import cupy

    def polled(took_ns: int) -> None:
        bench.launch(took_ns)
        while bench.word[0] != bench.number:
            pass

    def by_event(event: Any, took_ns: int) -> None:
        bench.launch(took_ns)
        event.record(bench.stream)
        event.synchronize()

    def by_query(event: Any, took_ns: int) -> None:
        bench.launch(took_ns)
        event.record(bench.stream)
        while cupy.cuda.runtime.eventQuery(event.ptr):
            pass

    blocking = cupy.cuda.Event(block=True, disable_timing=True)
    spinning = cupy.cuda.Event(block=False, disable_timing=True)
    ways: dict[str, Wait] = {
        POLLED: polled,
        "blocking event": partial(by_event, blocking),
        "spinning event": partial(by_event, spinning),
        "polling the event": partial(by_query, spinning),
    }
    try:
        ways["written word"] = by_written_word(bench)
    except (ImportError, RuntimeError, TypeError, ValueError) as error:
        report.refuse("written word", error)
    return ways


def by_written_word(bench: Bench) -> Wait:
    """Let the stream write a word, and poll it; raises if CUDA's bindings cannot do that."""
    from cuda.bindings import driver

    def wait(took_ns: int) -> None:
        bench.launch(took_ns)
        (status,) = driver.cuStreamWriteValue64(
            bench.stream.ptr, bench.written.ctypes.data, bench.number, 0
        )
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuStreamWriteValue64: {status}")
        while bench.written[0] != bench.number:
            pass

    wait(1000)
    return wait


def measure_loop(report: Report, settings: Settings, bench: Bench, first_us: float) -> None:
    """Let a thread wait for a blocking event and wake a loop, as a completion thread does."""
    import cupy

    event = cupy.cuda.Event(block=True, disable_timing=True)
    asked, is_over = threading.Semaphore(0), threading.Event()
    wake: list[Callable[[], None]] = []

    def complete() -> None:
        while True:
            asked.acquire()
            if is_over.is_set():
                return
            event.synchronize()
            wake.pop()()

    async def wait_often() -> list[float]:
        loop, taken_us = asyncio.get_running_loop(), []
        for _ in range(settings.rounds * TURNS):
            ended = asyncio.Event()
            began_ns = time.perf_counter_ns()
            bench.launch(KERNEL_NS)
            event.record(bench.stream)
            wake.append(partial(loop.call_soon_threadsafe, ended.set))
            asked.release()
            await ended.wait()
            taken_us.append((time.perf_counter_ns() - began_ns - KERNEL_NS) / 1e3)
        return taken_us

    thread = threading.Thread(target=complete)
    thread.start()
    try:
        taken_us = asyncio.run(wait_often())
    finally:
        is_over.set()
        asked.release()
        thread.join()
    predicted = WAKE_US["blocking event"] + 55
    title = "blocking event and asyncio loop"
    report.add(f"{title}, later than that", median(taken_us) - first_us, "us", predicted)


if __name__ == "__main__":
    run_benchmark("completion", measure, __doc__, cupy_reason)
