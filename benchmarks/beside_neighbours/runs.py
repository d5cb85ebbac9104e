"""Times inferences one after the other, blocking or awaited, of several networks at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Window:
    """When runs are timed: not in the lead-in, then for a number of seconds.

    After them each network goes on until it has the least number of runs.
    """

    lead_in_s: float
    seconds: float
    least_runs: int
    began_s: float = field(default_factory=time.perf_counter)

    def counts(self, now_s: float) -> bool:
        return now_s >= self.began_s + self.lead_in_s

    def is_over(self, now_s: float, run_count: int) -> bool:
        end_s = self.began_s + self.lead_in_s + self.seconds
        return now_s >= end_s and run_count >= self.least_runs


def blocking_runs(calls: Sequence[Callable[[], object]], window: Window) -> list[list[float]]:
    """Call each over and over, all at once, in this thread if it is one; the seconds of each."""

    def repeat(call: Callable[[], object]) -> list[float]:
        call()
        while not window.counts(now_s := time.perf_counter()):
            call()
        taken: list[float] = []
        while not window.is_over(now_s, len(taken)):
            before_s = time.perf_counter()
            call()
            now_s = time.perf_counter()
            taken.append(now_s - before_s)
        return taken

    if len(calls) == 1:
        return [repeat(calls[0])]
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(repeat, calls))


async def awaited_runs(
    calls: Sequence[Callable[[], Awaitable[object]]], window: Window
) -> list[list[float]]:
    """Await each over and over, a task each; the seconds from the call to the answer."""

    async def repeat(call: Callable[[], Awaitable[object]]) -> list[float]:
        await call()
        while not window.counts(now_s := time.perf_counter()):
            await call()
        taken: list[float] = []
        while not window.is_over(now_s, len(taken)):
            before_s = time.perf_counter()
            await call()
            now_s = time.perf_counter()
            taken.append(now_s - before_s)
        return taken

    return await asyncio.gather(*map(repeat, calls))
