"""Measuring: inferences one after another, or many at once by await or callback, until a limit.

What is measured goes into a :class:`Measurement` that the caller owns, so that an interrupt or an
error leaves what was measured so far.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import perf_counter_ns
from typing import Any, Protocol

from ...executors.interrupt import held_interrupt
from ..inputs import InputSets

__all__ = [
    "Limits",
    "Measurement",
    "measure_async",
    "measure_callback",
    "measure_sync",
    "run_on_event_loop",
    "whole_rounds",
]

_TURN_S = 0.2

Clock = Callable[[], int]


class SyncRequest(Protocol):
    """What ``measure_sync`` needs of a request."""

    def infer_sync(self, inputs: Any) -> Any: ...


class AsyncRequest(Protocol):
    """What ``measure_async`` needs of a request."""

    async def infer(self, inputs: Any) -> Any: ...


class CallbackRequest(Protocol):
    """What ``measure_callback`` needs of a request."""

    @property
    def userdata(self) -> Any: ...

    def set_callback(self, callback: Callable[[Any, BaseException | None], Any] | None) -> None: ...

    def start_async(self, inputs: Any, userdata: Any) -> None: ...

    def cancel(self) -> None: ...

    def wait(self) -> bool: ...


@dataclass(frozen=True)
class Limits:
    """When to stop, whichever comes first: a number of inferences, seconds; None: no limit."""

    count: int | None
    duration_s: float | None


@dataclass
class Measurement:
    """Latencies in the order in which the inferences finished. Times are of the clock, in ns."""

    limits: Limits
    clock: Clock = perf_counter_ns
    look: Callable[[Any], None] | None = None
    """Called with the request after each inference, outside of its latency."""
    latencies_ns: list[int] = field(default_factory=list)
    started_ns: int = 0
    ended_ns: int = 0
    issued_count: int = 0

    @property
    def count(self) -> int:
        """How many inferences have finished."""
        return len(self.latencies_ns)

    @property
    def duration_s(self) -> float:
        """Seconds from the start to the last inference that finished."""
        return max(0, self.ended_ns - self.started_ns) / 1e9

    @property
    def latencies_ms(self) -> list[float]:
        """The latencies in milliseconds."""
        return [latency_ns / 1e6 for latency_ns in self.latencies_ns]

    @property
    def progress(self) -> float:
        """How much of the nearer limit is used up, 0 to 1."""
        shares = [0.0]
        if self.limits.count:
            shares.append(self.count / self.limits.count)
        if self.limits.duration_s and self.started_ns:
            shares.append((self.clock() - self.started_ns) / 1e9 / self.limits.duration_s)
        return min(1.0, max(shares))

    def start(self) -> None:
        """Note the start; nothing is measured before."""
        self.started_ns = self.ended_ns = self.clock()

    def take(self) -> int | None:
        """Return the number of the inference to run next, or None when a limit is reached.

        The first is run however late a busy machine gets to it.
        """
        count, duration_s = self.limits.count, self.limits.duration_s
        if count is not None and self.issued_count >= count:
            return None
        is_over = duration_s is not None and self.clock() - self.started_ns >= duration_s * 1e9
        if is_over and self.issued_count:
            return None
        self.issued_count += 1
        return self.issued_count - 1

    def finish(self, began_ns: int, request: Any = None) -> None:
        """Note that an inference of a request has finished that began at a time of the clock."""
        self.ended_ns = self.clock()
        self.latencies_ns.append(self.ended_ns - began_ns)
        if self.look is not None:
            self.look(request)


def whole_rounds(count: int, request_count: int) -> int:
    """Round a number of inferences up to a multiple of the requests: the last round is full."""
    return -(-count // request_count) * request_count


def measure_sync(request: SyncRequest, inputs: InputSets, measurement: Measurement) -> None:
    """Infer one after another on this thread; raises what the request raises.

    After Ctrl-C the inference under way ends, then KeyboardInterrupt is raised; a second one
    raises it at once.
    """
    with held_interrupt(is_impatient=True) as interrupt:
        measurement.start()
        while not interrupt.has_come and (number := measurement.take()) is not None:
            values = inputs.at(number)
            began_ns = measurement.clock()
            request.infer_sync(values)
            measurement.finish(began_ns, request)
    if interrupt.has_come:
        raise KeyboardInterrupt


async def measure_async(
    requests: Sequence[AsyncRequest], inputs: InputSets, measurement: Measurement
) -> None:
    """Keep all requests in flight, each awaited by a task of its own.

    The first error ends the others and is raised as it is.
    """

    async def work(request: AsyncRequest) -> None:
        while (number := measurement.take()) is not None:
            values = inputs.at(number)
            began_ns = measurement.clock()
            await request.infer(values)
            measurement.finish(began_ns, request)

    measurement.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            for request in requests:
                tasks.create_task(work(request))
    except BaseExceptionGroup as group:
        raise _first_error(group) from None


def measure_callback(
    requests: Sequence[CallbackRequest], inputs: InputSets, measurement: Measurement
) -> None:
    """Keep all requests in flight, each started again by its callback; blocks this thread.

    The first error ends the others and is raised as it is, after the callbacks are over. Ctrl-C
    does the same, and a second one raises at once.
    """
    told: SimpleQueue[BaseException | None] = SimpleQueue()
    is_over = threading.Event()

    def on_end(request: CallbackRequest, error: BaseException | None) -> None:
        try:
            if error is None:
                measurement.finish(request.userdata, request)
                if not is_over.is_set() and (number := measurement.take()) is not None:
                    request.start_async(inputs.at(number), measurement.clock())
                    return
        except BaseException as raised:
            error = raised
        told.put(error)

    def cancel_all() -> None:
        is_over.set()
        for request in requests:
            request.cancel()

    for request in requests:
        request.set_callback(on_end)
    first_error: BaseException | None = None
    with held_interrupt(is_impatient=True, tell=cancel_all) as interrupt:
        measurement.start()
        # Callbacks count as well, so all first numbers are taken before the first of them can come.
        numbers = [number for _ in requests if (number := measurement.take()) is not None]
        for request, number in zip(requests, numbers, strict=False):
            try:
                request.start_async(inputs.at(number), measurement.clock())
            except BaseException as refused:
                told.put(refused)
        for _ in numbers:
            error = _next_of(told)
            if error is not None and not is_over.is_set():
                first_error = error
                cancel_all()
        for request in requests:
            with suppress(Exception):  # told already
                request.wait()
            request.set_callback(None)
    if interrupt.has_come:
        raise KeyboardInterrupt
    if first_error is not None:
        raise first_error


def _next_of(told: SimpleQueue[BaseException | None]) -> BaseException | None:
    """Wait for what a callback tells, in turns: Python hears a SIGINT between two of them.

    One that comes just before a wait without end begins neither wakes it nor is heard in it.
    """
    while True:
        with suppress(Empty):
            return told.get(timeout=_TURN_S)


def run_on_event_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine on uvloop's event loop if that is installed, else on asyncio's own."""
    try:
        import uvloop
    except ImportError:
        make_loop = None
    else:
        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first
