"""CPU streams: worker threads over one shared queue.

Theory of operation. ``run`` takes no lock: it looks whether the executor is open and puts the
function into a ``SimpleQueue``. Between the look and the put, close may have run to its end and
the workers may be gone. So close, once it has joined them, first sets ``_is_ended`` and then
refuses whatever is left in the queue; and ``run``, once it has put, looks at ``_is_ended`` and
does the same. One of the two always comes second, sees the late item and refuses it, and taking it
out of the queue decides which thread, so it happens exactly once.

Work whose token has not fired is parked and counts as accepted. The thread that fires the token
only puts it into the queue.

Beside the workers' lanes there is one for threads that call functions themselves
(:meth:`StreamsExecutor.borrow_lane`). It has an index and a context of its own and is lent to one
thread at a time, and to none that would overtake what is in the queue.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from ..errors import PropertyError
from .base import (
    NOW,
    Lane,
    Ready,
    TaskExecutor,
    Then,
    mark_own_thread,
    refuse_own_thread,
    run_here,
)
from .cpu_allowance import allowed_cpus, cpus_of_stream
from .parking import Parking, tell
from .shortage import start_thread

_log = logging.getLogger("aioinfer")

_Work = tuple[Callable[[Lane], Ready], Then]


@dataclass(frozen=True)
class StreamsConfig:
    """What makes two executors the same: equal configurations may share one.

    ``thread_count`` is per stream, and how many threads a kernel may use there; 0 divides the CPUs
    that the process is allowed among the streams. ``pinning`` keeps each stream on CPUs of its own
    where the operating system can do that. ``cpus`` are those that it has; none: all allowed ones.
    """

    name: str
    stream_count: int = 1
    thread_count: int = 0
    pinning: bool = False
    cpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.stream_count < 1:
            raise PropertyError(
                f"executor {self.name!r}: stream_count is {self.stream_count}; give 1 or more",
                key="NUM_STREAMS",
                value=self.stream_count,
            )
        if self.thread_count < 0:
            raise PropertyError(
                f"executor {self.name!r}: thread_count is {self.thread_count}; give the threads of "
                f"one stream, or 0 to divide the allowed CPUs",
                key="INFERENCE_NUM_THREADS",
                value=self.thread_count,
            )


class StreamsExecutor(TaskExecutor):
    """N daemon threads over one first-in-first-out queue, started by the first ``run``.

    Where one cannot be started, that ``run`` raises DeviceError, and the next tries again.

    A user's callbacks run on one with a single stream: in order, one at a time, on no thread that
    completes work.
    """

    def __init__(self, config: StreamsConfig) -> None:
        super().__init__(config.name)
        self.config = config
        self._thread_count = config.thread_count or max(
            1, (len(config.cpus) or allowed_cpus().count) // config.stream_count
        )
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._parking = Parking(f"executor {config.name!r}")
        self._caller_lane = Lane(f"{config.name}.caller", config.stream_count, 1, Context())
        self._caller_lock = threading.Lock()
        self._caller_lane.give_back = self._caller_lock.release
        self._threads: list[threading.Thread] = []
        self._working: set[int] = set()
        self._meeting = threading.Lock()  # two at once would keep each other's streams waiting
        self._lock = threading.Lock()  # of the threads' start and end; never held in run's hot path
        self._has_started = False
        self._is_told_to_stop = False
        self._is_ended = False

    @property
    def thread_count(self) -> int:
        """How many threads a kernel may use on each stream; at least 1."""
        return self._thread_count

    @property
    def waiting_count(self) -> int:
        """How many functions are in the queue; out of date as soon as it is read."""
        return self._queue.qsize()

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        parking = self._parking
        if parking.is_closed or not parking.process.is_current:
            raise parking.refusal()
        if not self._has_started:
            self._start()
        if after is NOW or (after.is_ready and after.error is None):
            self._queue.put((function, then))
            if self._is_ended:
                self._refuse_queued()
        else:
            self._parking.park(after, partial(self._put, function, then), then)

    @property
    def is_idle(self) -> bool:
        return not self._working and self._queue.empty()

    def borrow_lane(self) -> Lane | None:
        """Lend the callers' lane, for kernels of one thread, until its ``give_back``.

        None if another thread has it, if work is in the queue, if it has CPUs of its own, or after
        close. Never blocks.
        """
        if self.config.cpus or not self._queue.empty() or self._is_told_to_stop:
            return None
        return self._caller_lane if self._caller_lock.acquire(False) else None

    def lending_terms(self) -> tuple[tuple[Callable[[], object], bool], ...] | None:
        if self.config.cpus:
            return None
        return (self._caller_lock.locked, False), (self._queue.empty, True)

    def run_on_each(self, function: Callable[[Lane], Ready], *, on_callers: bool = False) -> None:
        """Call it once on every stream, wait for all, and raise the first error. Blocks.

        A stream that comes early waits for the others, so what they run now delays them all; for
        work that is done once. ``on_callers``: then on the callers' lane, too, if that is lent now.
        """
        count = self.config.stream_count
        lock, has_met, come = threading.Lock(), threading.Event(), 0

        def meet(lane: Lane) -> Ready:
            nonlocal come
            with lock:
                come += 1
                if come == count:
                    has_met.set()
            has_met.wait()
            return function(lane)

        refuse_own_thread("run_on_each")
        with self._meeting:
            self.run_and_wait([meet] * count, has_met.set)
        lane = self.borrow_lane() if on_callers else None
        if lane is not None:
            try:
                function(lane)
            finally:
                lane.give_back()

    def close(self, *, drain: bool = True) -> None:
        """Refuse new work, finish what was accepted, and join the threads; twice is fine.

        Blocks until the tokens that accepted work waits for have fired. Without drain it waits
        only for the functions that run; those in the queue and those whose token has not fired
        end with ClosedError. Raises RequestStateError on one of aioinfer's own threads.
        """
        refuse_own_thread(f"closing {self!r}")
        if not self._parking.is_in_its_process:
            return
        self._parking.close(drain=drain)
        if not drain:
            self._refuse_queued()
        with self._lock:
            if not self._is_told_to_stop:
                self._is_told_to_stop = True
                for _ in self._threads:
                    self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._is_ended = True
        self._refuse_queued()

    def __repr__(self) -> str:
        count = self.config.stream_count
        streams = "1 stream" if count == 1 else f"{count} streams"
        state = "closed" if self._parking.is_closed else f"{self.waiting_count} waiting"
        return f"<{type(self).__name__} {self.name!r} {streams}, {state}>"

    def _put(self, function: Callable[[Lane], Ready], then: Then) -> None:
        self._queue.put((function, then))
        if self._is_ended:
            self._refuse_queued()

    def _refuse_queued(self) -> None:
        stop_count = 0
        while True:
            try:
                work = self._queue.get_nowait()
            except Empty:
                break
            if work is None:
                stop_count += 1
            else:
                tell(work[1], NOW, self._parking.refusal())
        for _ in range(stop_count):  # another close told the workers to stop; that still holds
            self._queue.put(None)

    def _start(self) -> None:
        with self._lock:
            if self._parking.is_closed:
                raise self._parking.refusal()
            while len(self._threads) < self.config.stream_count:
                index = len(self._threads)
                lane = Lane(f"{self.name}.{index}", index, self._thread_count)
                thread = threading.Thread(
                    target=self._work, args=(lane,), name=lane.name, daemon=True
                )
                start_thread(thread)
                self._threads.append(thread)
            self._has_started = True

    def _work(self, lane: Lane) -> None:
        try:
            mark_own_thread()
            self._choose_cpus(lane)
        except MemoryError:  # or the thread would end, and what is in its queue wait for ever
            _log.warning("%r is not bound to its CPUs", lane, exc_info=True)
        while (work := self._queue.get()) is not None:
            self._working.add(lane.index)
            try:
                run_here(work[0], lane, work[1])
            except MemoryError as error:
                tell(work[1], NOW, error)
            except BaseException:
                _log.exception("a continuation on %r raised; its run may never settle", lane)
            self._working.discard(lane.index)
            del work  # an idle worker keeps nothing alive

    def _choose_cpus(self, lane: Lane) -> None:
        """Bind this worker to its CPUs, because a thread inherits the binding of its creator.

        The creator is the thread that came first, and may be a pinned worker of another executor.
        """
        if not hasattr(os, "sched_setaffinity"):
            return
        cpus = self.config.cpus or allowed_cpus().cpus
        if self.config.pinning:
            cpus = cpus_of_stream(cpus, lane.thread_count, lane.index)
        try:
            if os.sched_getaffinity(0) != set(cpus):  # 0 is the calling thread
                os.sched_setaffinity(0, cpus)
        except OSError:
            _log.warning("%r cannot be bound to CPUs %s", lane, cpus, exc_info=True)
