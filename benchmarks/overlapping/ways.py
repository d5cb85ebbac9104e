"""The two ways of overlap.py through a pipeline: awaited requests, and threads with queues."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Protocol

import numpy as np

import aioinfer
from overlapping.device import Array, Work
from overlapping.figures import Needs

__all__ = ["Ours", "Threads", "Way"]


class Way(Protocol):
    """A pipeline as its user sees it."""

    def fill(self, seconds: float) -> list[int]:
        """Keep it full for so long; say when each request ended, by ``perf_counter_ns``."""

    def alone(self, count: int) -> list[int]:
        """Send requests one by one; say how many nanoseconds each took."""


class Ours:
    """A network of aioinfer, awaited on uvloop."""

    def __init__(self, network: aioinfer.ExecutableNetwork, runner: asyncio.Runner) -> None:
        count = network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        self._requests = [network.create_infer_request() for _ in range(count)]
        self._runner = runner

    def fill(self, seconds: float) -> list[int]:
        return self._runner.run(self._fill(seconds))

    async def _fill(self, seconds: float) -> list[int]:
        ends_ns: list[int] = []
        until_ns = time.perf_counter_ns() + round(seconds * 1e9)

        async def work(request: aioinfer.InferRequest) -> None:
            inputs = {"x": np.ones((1, 16), np.float32)}
            while time.perf_counter_ns() < until_ns:
                await request.infer(inputs)
                ends_ns.append(time.perf_counter_ns())

        await asyncio.gather(*(work(request) for request in self._requests))
        return ends_ns

    def alone(self, count: int) -> list[int]:
        return self._runner.run(self._alone(count))

    async def _alone(self, count: int) -> list[int]:
        inputs = {"x": np.ones((1, 16), np.float32)}
        times_ns = []
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            await self._requests[0].infer(inputs)
            times_ns.append(time.perf_counter_ns() - began_ns)
        return times_ns


class Threads:
    """What one writes without a library: a thread for each stage, and queues between them."""

    def __init__(self, works: Mapping[str, Work], needs: Needs) -> None:
        self._count = 2 * len(needs)  # as many as aioinfer has slots
        self._threads: list[threading.Thread] = []
        edges: dict[tuple[str, str], SimpleQueue[Array | None]] = {
            (source, node): SimpleQueue() for node, sources in needs.items() for source in sources
        }
        last = list(needs)[-1]
        self._ends: SimpleQueue[Array | None] = SimpleQueue()
        self._begins = [queue for (source, _), queue in edges.items() if source == "x"]
        for node, sources in needs.items():
            into = [queue for (source, _), queue in edges.items() if source == node]
            out_of = [edges[source, node] for source in sources]
            self._start(works[node], out_of, [self._ends] if node == last else into)

    def _start(
        self,
        work: Work,
        sources: list[SimpleQueue[Array | None]],
        targets: list[SimpleQueue[Array | None]],
    ) -> None:
        def run() -> None:
            is_over = False
            while not is_over:
                arrays = [source.get() for source in sources]
                given = [array for array in arrays if array is not None]
                is_over = not given
                result = work(*given) if given else None
                for target in targets:
                    target.put(result)

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def _put(self, array: Array | None) -> None:
        for queue in self._begins:
            queue.put(array)

    def fill(self, seconds: float) -> list[int]:
        array = np.ones((1, 16), np.float32)
        ends_ns: list[int] = []
        until_ns = time.perf_counter_ns() + round(seconds * 1e9)
        for _ in range(self._count):
            self._put(array)
        left = self._count
        while left:
            self._ends.get()
            ends_ns.append(time.perf_counter_ns())
            if ends_ns[-1] < until_ns:
                self._put(array)
            else:
                left -= 1
        return ends_ns

    def alone(self, count: int) -> list[int]:
        array = np.ones((1, 16), np.float32)
        times_ns = []
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            self._put(array)
            self._ends.get()
            times_ns.append(time.perf_counter_ns() - began_ns)
        return times_ns

    def close(self) -> None:
        self._put(None)
        for thread in self._threads:
            thread.join()
