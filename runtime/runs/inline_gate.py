"""Which runs are short enough to stay on their caller's thread. A pure decision.

Theory of operation. A hand-over to a worker and back costs tens of microseconds, a tiny plan a few.
So runs are timed, per shape signature, wherever they run, and a plan whose least time of late is
within the threshold may run on its caller's thread. The least time, because what is added to it
(other threads, the interpreter's lock) says nothing about the plan. A plan whose time depends on
its data can deceive: if more than one run in about twenty takes far too long on its caller's
thread, the next ones go to the workers again, each time twice as many. Where they are rarer, the
machine was busy.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from ..graph import is_static
from ..tensors.tensor import Port, signature_reader

__all__ = ["InlineGate", "ServiceTime"]

FIRST_RUNS = 3  # the first of all is slow: memory is touched, caches are cold
MOST_FIRST_RUNS = 1024
WINDOW_RUNS = 64  # how many runs a least time stands for, at most twice as many
FAR_TOO_LONG = 10  # thresholds; anything less is no harm to an event loop
OVERRUN_COST = 20  # what a run that took far too long costs, in runs on time that pay for it
MOST_OVERRUN_DEBT = 60
KEPT_SIGNATURES = 64
BRIEF_NS = 50_000  # other threads of Python wait that long
BEARABLE_NS = 50_000_000  # a cancel from another thread, or Ctrl-C, may wait this long


class ServiceTime:
    """How long the runs of one plan take. Not thread-safe, but good enough.

    Threads that note at once may lose a note; that changes when a decision falls, and none.
    """

    __slots__ = (
        "_brief_ns",
        "_earlier_ns",
        "_least_ns",
        "_needed",
        "_noted",
        "_overrun_debt",
        "_threshold_ns",
        "far_too_long_ns",
        "is_bearable",
        "is_brief",
        "is_short",
    )

    def __init__(self, threshold_ns: int) -> None:
        self.is_short = False
        """True if the least time of late is within the threshold; False as long as too little is
        known."""
        self.is_bearable = False
        """The same, for a caller that blocks anyway and has no deadline: within 50 ms."""
        self.is_brief = False
        """The same, within 50 us, however long runs may be: nobody minds the interpreter's lock."""
        self._threshold_ns, self._brief_ns = threshold_ns, min(threshold_ns, BRIEF_NS)
        self.far_too_long_ns = FAR_TOO_LONG * threshold_ns
        """That much on a caller's thread is an overrun."""
        self._least_ns = self._earlier_ns = _NEVER_NS
        self._noted = 0
        self._needed = FIRST_RUNS
        self._overrun_debt = 0
        """What overruns on callers' threads have cost, less what runs on time have paid."""

    def note(self, service_ns: int, *, is_inline: bool = False) -> None:
        """Count a run of this duration; ``is_inline``: on the thread of a caller with a loop.

        Too many overruns there discard what was noted, and the next decision needs twice as many
        runs.
        """
        if is_inline:
            if service_ns >= self.far_too_long_ns:
                self._note_overrun()
                return
            if self._overrun_debt:
                self._overrun_debt -= 1
        self._noted += 1
        if service_ns < self._least_ns:
            self._least_ns = service_ns
        noted, needed = self._noted, self._needed
        if noted == needed or (noted % WINDOW_RUNS == 0 and noted > needed):
            least_ns = min(self._least_ns, self._earlier_ns)
            self.is_short = least_ns <= self._threshold_ns
            self.is_brief = least_ns <= self._brief_ns
            self.is_bearable = least_ns <= BEARABLE_NS
            self._earlier_ns, self._least_ns = self._least_ns, _NEVER_NS

    def pay(self, count: int) -> None:
        """Count runs on callers' threads that were on time, and were not noted."""
        self._overrun_debt = max(0, self._overrun_debt - count)

    def _note_overrun(self) -> None:
        self._overrun_debt += OVERRUN_COST
        if self._overrun_debt > MOST_OVERRUN_DEBT:
            self.is_short = self.is_brief = False
            self._least_ns = self._earlier_ns = _NEVER_NS
            self._noted = self._overrun_debt = 0
            self._needed = min(2 * self._needed, MOST_FIRST_RUNS)


class InlineGate:
    """The times of one network's plans; thread-safe. ``threshold_us`` is above 0."""

    def __init__(self, ports: Sequence[Port], threshold_us: int) -> None:
        self._threshold_ns = threshold_us * 1000
        self._by_signature: dict[Any, ServiceTime] = {}
        self._lock = threading.Lock()
        self._ports, self._growing = tuple(ports), tuple[str, ...]()
        self._signature_of = signature_reader(self._ports)
        is_fixed = all(is_static(port.shape) for port in self._ports)
        self.only = ServiceTime(self._threshold_ns) if is_fixed else None
        """That of all runs, where all inputs have fixed shapes."""

    def follow_states(self, names: Collection[str]) -> None:
        """Have runs be alike whose states (inputs of these names) are of one size, to a half.

        For before the first run. Where a state grows, each run would be the first of its shapes.
        """
        states = [port for port in self._ports if port.name in names]
        self._growing = tuple([port.name for port in states if not is_static(port.shape)])
        others = [port for port in self._ports if port.name not in self._growing]
        self._signature_of = signature_reader(others)

    def time_of(self, inputs: Mapping[str, Any]) -> ServiceTime:
        """Return the times of the plan for inputs of these shapes; checked inputs, by name."""
        if self.only is not None:
            return self.only
        signature: Hashable = self._signature_of(inputs)
        if self._growing:
            size = sum([math.prod(inputs[name].shape) for name in self._growing])
            signature = signature, size.bit_length()
        return self._time_at(signature)

    def time_of_rows(self, inputs: Mapping[str, Any], row_count: int) -> ServiceTime:
        """Return those for this number of rows like these; all inputs are tensors with rows."""
        if self.only is not None:
            return self.only
        shapes = [(row_count, *inputs[port.name].shape[1:]) for port in self._ports]
        return self._time_at(tuple(shapes))

    def _time_at(self, signature: Hashable) -> ServiceTime:
        time = self._by_signature.get(signature)
        if time is None:
            with self._lock:
                time = self._by_signature.get(signature)
                if time is None:
                    if len(self._by_signature) >= KEPT_SIGNATURES:
                        del self._by_signature[next(iter(self._by_signature))]  # the oldest
                    time = self._by_signature[signature] = ServiceTime(self._threshold_ns)
        return time


_NEVER_NS = 1 << 62
