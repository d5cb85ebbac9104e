"""What a worker with more to do puts off: waking somebody, for the more answers at once.

Theory of operation. Waking an event loop costs more than a short job, and a loop that is awake
competes with the worker for the interpreter. So after a job the worker keeps the wake-ups back and
takes the next one, as long as there is one. That is bounded twice: nothing waits longer than
LONGEST_WAIT_NS and a job, and jobs have to have been short for a while. Only what comes after a
function has returned is put off, because a function that goes on may go on for long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter_ns

_log = logging.getLogger("aioinfer")

LONGEST_WAIT_NS = 100_000
SHORT_JOB_NS = 50_000  # a longer one is worth a wake-up of its own
FORGOTTEN = 16  # by its sixteenth the longest job of late shrinks with every other one


class LateCalls:
    """The calls that one worker puts off; touched by that thread alone. ``now_ns`` is its clock."""

    __slots__ = ("_calls", "_first_ns", "_longest_ns", "_now_ns", "_started_ns", "is_taking")

    def __init__(self, now_ns: Callable[[], int] = perf_counter_ns) -> None:
        self._now_ns = now_ns
        self.is_taking = False
        """True while calls may be put off."""
        self._calls: list[Callable[[], None]] = []
        self._longest_ns = 2 * SHORT_JOB_NS  # until the first jobs show that they are short
        self._started_ns = self._first_ns = 0

    def job_starts(self) -> None:
        """Note that the worker's next job begins."""
        self._started_ns = self._now_ns()

    def function_ended(self) -> None:
        """Note that the job's function has returned; who is told of it now may put calls off."""
        job_ns = self._now_ns() - self._started_ns
        longest_ns = self._longest_ns - self._longest_ns // FORGOTTEN
        self._longest_ns = longest_ns = max(job_ns, longest_ns)
        self.is_taking = longest_ns <= SHORT_JOB_NS

    def add(self, call: Callable[[], None]) -> None:
        """Keep a call for later; only while ``is_taking``. It never raises."""
        if not self._calls:
            self._first_ns = self._now_ns()
        self._calls.append(call)

    @property
    def may_wait(self) -> bool:
        """True if there are calls, and they may wait for one more job; no longer takes any."""
        self.is_taking = False
        return bool(self._calls) and self._now_ns() - self._first_ns < LONGEST_WAIT_NS

    def call_all(self) -> None:
        """Call them now; an error is logged."""
        calls = self._calls
        if not calls:
            return
        self._calls = []
        for call in calls:
            try:
                call()
            except BaseException:
                _log.exception("%r was put off, and raised", call)
