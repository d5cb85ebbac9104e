"""Processes that build plans of cuDNN, so that no event loop waits for the GIL meanwhile.

The frontend of cuDNN holds the GIL while it plans and compiles. Processes of their own do that,
from a device's properties and without the device, and send the plans back as blobs, which take
milliseconds to load. They are spawned, never forked, with the first request, at most as many as may
work at once; they end by themselves when idle, when this process ends, and when the pool is closed.
A request goes to a process that is idle, or to one more, or waits; its thread waits without the
GIL. A process that crashes or hangs is ended, and its request fails; what to do then is the
caller's choice.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

from ...errors import ClosedError
from .libraries.cudnn_graph import GraphDescription, PlanCandidate
from .worker_process import EndedError, WorkerProcess

__all__ = ["PlanWorkers", "WorkerError"]

_PROGRAM = Path(__file__).with_name("plan_worker_program.py")
_IDLE_S = 60.0
_LIMIT_S = 120.0  # loading cuDNN and compiling one plan take seconds on a slow machine
_MOST_WORKERS = 4


class WorkerError(Exception):
    """A process could not build what it was asked for; the text says what happened."""


class PlanWorkers:
    """A pool of processes for all devices. Thread-safe; ``build`` blocks."""

    def __init__(
        self,
        most_workers: int = min(_MOST_WORKERS, os.cpu_count() or 1),
        idle_s: float = _IDLE_S,
        limit_s: float = _LIMIT_S,
        program: Path = _PROGRAM,
    ) -> None:
        self._most_workers, self._idle_s, self._limit_s = most_workers, idle_s, limit_s
        self._program = program
        self._changed = threading.Condition()
        self._idle: list[WorkerProcess] = []
        self._busy: set[WorkerProcess] = set()
        self._starting = 0
        self._is_closed = False
        _pools.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._busy)} busy, {len(self._idle)} idle"
        return f"<{type(self).__name__} {state}>"

    def build(
        self, description: GraphDescription, device: str, most: int, seconds: float
    ) -> list[PlanCandidate]:
        """Build at least one plan, at most ``most``, and no further one after ``seconds``.

        ``device`` is the JSON of its properties. Raises WorkerError with what cuDNN or the process
        said, and ClosedError once the pool is closed, to waiting threads as well.
        """
        request = {
            "description": description.to_json(),
            "device": device,
            "most": most,
            "seconds": seconds,
        }
        fields, blobs = self._call(request)
        if "error" in fields:
            raise WorkerError(str(fields["error"]))
        found, start = [], 0
        for item in fields["candidates"]:
            blob = blobs[start : start + item["blob"]]
            start += len(blob)
            knobs = tuple((name, value) for name, value in item["knobs"])
            found.append(PlanCandidate(**{**item, "knobs": knobs, "blob": blob}))
        return found

    def close(self) -> None:
        """End all processes, also those at work; twice is fine."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for worker in self._busy:
                worker.kill()  # its call fails, and closes it
            self._changed.notify_all()
        for worker in idle:
            worker.close()

    def forget(self) -> None:
        """Leave the processes to the parent of this forked one, where the pool is closed."""
        for worker in (*self._idle, *self._busy):
            worker.disown()
        self._changed = threading.Condition()
        self._idle, self._busy, self._starting, self._is_closed = [], set(), 0, True

    def _call(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        while True:
            worker, is_fresh = self._take()
            try:
                answer = worker.call(request, self._limit_s)
            except EndedError as ended:
                self._drop(worker)
                self._raise_if_closed()
                if ended.was_idle and not is_fresh:
                    continue  # it had not seen the request
                raise WorkerError(f"the process that builds plans {ended}") from ended
            except BaseException:
                self._drop(worker)
                raise
            self._give_back(worker)
            return answer

    def _take(self) -> tuple[WorkerProcess, bool]:
        with self._changed:
            while True:
                self._raise_if_closed()
                while self._idle:
                    worker = self._idle.pop()
                    if worker.is_alive():
                        self._busy.add(worker)
                        return worker, False
                    worker.close()
                if len(self._busy) + self._starting < self._most_workers:
                    self._starting += 1
                    break
                self._changed.wait()
        return self._started(), True

    def _started(self) -> WorkerProcess:
        worker = None
        try:
            if not _can_spawn():
                raise WorkerError("this program cannot start Python in another process")
            worker = WorkerProcess(self._program, self._idle_s)
        except OSError as error:
            raise WorkerError(f"no process to build plans can be started: {error}") from error
        finally:
            with self._changed:
                self._starting -= 1
                if worker is not None:
                    self._busy.add(worker)
                if self._is_closed and worker is not None:
                    worker.kill()
                self._changed.notify()
        return worker

    def _give_back(self, worker: WorkerProcess) -> None:
        with self._changed:
            self._busy.discard(worker)
            is_closed = self._is_closed
            if not is_closed:
                self._idle.append(worker)
            self._changed.notify()
        if is_closed:
            worker.close()

    def _drop(self, worker: WorkerProcess) -> None:
        with self._changed:
            self._busy.discard(worker)
            self._changed.notify()
        worker.close()

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise ClosedError("the processes that build plans have been closed")


_pools: weakref.WeakSet[PlanWorkers] = weakref.WeakSet()


def _can_spawn() -> bool:
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _after_fork() -> None:
    for pool in list(_pools):
        pool.forget()


def _at_exit() -> None:
    for pool in list(_pools):
        pool.close()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
