"""CPU stream executors that networks share: one per configuration, closed with its last lease.

A load takes leases, and makes networks inside of networks; where an error leaves it, it gives back
what it has noted by then (``undone_on_error``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from ..errors import AioInferError, ClosedError, DeviceError
from .base import must_not_block, refuse_own_thread
from .fork import ProcessMark
from .shortage import start_thread
from .streams import StreamsConfig, StreamsExecutor

_log = logging.getLogger("aioinfer")


class _Lease:
    """How many hold one executor."""

    __slots__ = ("count", "executor")

    def __init__(self, executor: StreamsExecutor) -> None:
        self.executor, self.count = executor, 0


class ExecutorManager:
    """Lends executors by configuration; equal ones are the same executor. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: dict[StreamsConfig, _Lease] = {}
        self._closers: list[threading.Thread] = []
        self._unclosed: list[StreamsExecutor] = []
        """Those for which no closing thread could be started."""
        self._is_closed = False
        self._process = ProcessMark()

    @property
    def executor_count(self) -> int:
        """How many executors are lent out now."""
        return len(self._leases)

    def waiting_counts(self) -> dict[str, int]:
        """Return how many functions wait in each executor that is lent out, by its name."""
        with self._lock:
            executors = [lease.executor for lease in self._leases.values()]
        counts: dict[str, int] = {}
        for executor in executors:
            counts[executor.name] = counts.get(executor.name, 0) + executor.waiting_count
        return counts

    def acquire(self, config: StreamsConfig) -> StreamsExecutor:
        """Lend the executor of this configuration, made if no lease is open; pair it with release.

        Does not block. Raises ClosedError after close, and in a forked child.
        """
        self._process.check("executor manager")
        with self._lock:
            if self._is_closed:
                raise ClosedError(
                    f"the executor manager is closed and lends no {config.name!r}; use a new Core"
                )
            known = self._leases.get(config)
            lease = known or _Lease(StreamsExecutor(config))
            executor = lease.executor
            note_taken(executor, partial(self.release, executor))
            if known is None:
                self._leases[config] = lease
            lease.count += 1
            return executor

    def release(self, executor: StreamsExecutor) -> None:
        """Return a lease; the last one closes the executor, which drains it first and blocks.

        Where blocking could deadlock (a callback that drops the last network) it does not block: a
        thread made for it closes the executor, and ``close`` waits for that one. Raises
        AioInferError for an executor that is not lent out; after ``close`` it does nothing.
        """
        if not self._process.is_current:
            return
        note_given_back(executor)
        with self._lock:
            if self._is_closed:
                return
            lease = self._leases.get(executor.config)
            if lease is None or lease.executor is not executor:
                raise AioInferError(f"{executor!r} is not lent out; release each lease once")
            lease.count -= 1
            if lease.count:
                return
            del self._leases[executor.config]
            if must_not_block():
                self._hand_over(executor)
                return
            unclosed, self._unclosed = self._unclosed, []
        for last in (executor, *unclosed):
            last.close()

    def close(self) -> None:
        """Lend no more, close every executor, lent out or not, and join; twice is fine. Blocks.

        Raises RequestStateError on one of aioinfer's own threads.
        """
        refuse_own_thread("closing the executor manager")
        if not self._process.is_current:
            return
        with self._lock:
            self._is_closed = True
            leases, self._leases = self._leases, {}
            closers, self._closers = self._closers, []
            unclosed, self._unclosed = self._unclosed, []
        for executor in (*(lease.executor for lease in leases.values()), *unclosed):
            executor.close()
        for closer in closers:
            closer.join()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.executor_count} executors"
        return f"<{type(self).__name__} {state}>"

    def _hand_over(self, executor: StreamsExecutor) -> None:
        self._closers = [closer for closer in self._closers if closer.is_alive()]
        closer = threading.Thread(target=executor.close, name=f"{executor.name}.close", daemon=True)
        try:
            start_thread(closer)
        except (DeviceError, RuntimeError):  # Python 3.12 starts none at exit
            self._unclosed.append(executor)  # idle, or soon; a caller that may block closes it
        else:
            self._closers.append(closer)


class _Taken(threading.local):
    """What the calls under way on a thread hold, in the order in which it was taken."""

    items: list[tuple[object, Callable[[], object]]] | None = None


_taken = _Taken()


@contextmanager
def undone_on_error() -> Iterator[None]:
    """Give back what this thread takes inside and still holds, the latest first, after an error.

    Calls may be inside each other: what an inner one keeps is then the outer one's. What giving
    back raises is logged, and the error is raised that came first.
    """
    outer = _taken.items
    inner = _taken.items = []
    try:
        yield
        if outer is not None:
            outer += inner
    except BaseException:
        while inner:
            owner, give_back = inner.pop()
            try:
                give_back()
            except Exception as error:
                _log.warning("%r is not given back after an error: %r", owner, error)
        raise
    finally:
        _taken.items = outer


def note_taken(owner: object, give_back: Callable[[], object]) -> None:
    """Have a call under way on this thread give something back if it fails."""
    if _taken.items is not None:
        _taken.items.append((owner, give_back))


def note_count() -> int:
    """Return how much the innermost call under way has noted, and still holds."""
    return len(_taken.items or ())


def note_owner(owner: object, give_back: Callable[[], object], since: int = 0) -> None:
    """Note one owner in place of what the innermost call has noted behind ``since``.

    For what other threads may give back beside the call: they cannot strike this thread's notes,
    so ``give_back`` is one that may be called twice.
    """
    if _taken.items is not None:
        _taken.items[since:] = [(owner, give_back)]


def note_given_back(owner: object) -> None:
    """Forget what was taken last under that owner: it is given back, or about to be."""
    items = _taken.items or []
    for place in reversed(range(len(items))):
        if items[place][0] is owner:
            del items[place]
            return
