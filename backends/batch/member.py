"""A request that waits for a run which it shares, or has one: the slot of BATCH."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf
from typing import Protocol

from ...executors import NOW, Clock, Ready, Then, hand_over
from ...runtime.network.executable_network import Slot
from ...runtime.runs.admission import Ticket
from ...runtime.runs.stage import Stop
from ...runtime.tracing.recorder import SpanRecorder
from .bundle import Bundle
from .collector import begin_by
from .rows import RowsOf

__all__ = ["BatchMember", "MemberNetwork"]


class MemberNetwork(Protocol):
    """What a member asks of its network."""

    batched_inputs: Sequence[str]
    rows_of: RowsOf
    """Counts the rows of a request, and tells with which others it goes."""
    clock: Clock
    timeout_s: float
    """How long a run that is not full may wait for more; 0: it does not."""
    service_s: float
    """How long runs take of late; 0 where that is not known."""

    def offer(self, member: BatchMember) -> None:
        """Have a request wait for its run. Never raises or blocks."""

    def drop(self, member: BatchMember) -> bool:
        """Take a stopped request out of those that wait; False: it has a run."""


class SharedRun(Protocol):
    """What a member asks of the run that it shares."""

    def stop_if_all_have(self) -> None:
        """Stop the run if all members are stopped. Thread-safe."""


class BatchMember(Slot):
    """One request that waits for a run or has one."""

    def __init__(self, network: MemberNetwork) -> None:
        self._network = network
        self.ticket: Ticket = (0, 0)
        self.deadline_s = inf
        self.row_count = 0
        self.key: Hashable = None
        self.begin_by_s = 0.0
        self.group_count = 0
        """How many requests share its run; 0 while it waits for one."""
        self.joined: SharedRun | None = None
        """The run that it shares."""
        self.bundle: Bundle | None = None
        """The calls that it is, if it is more than one request."""
        self._after: Ready = NOW
        self._then: Then | None = None

    def start(self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder) -> BatchMember:
        self._after, self._then = after, then
        stop.when_set(self.on_stop)
        self._take_up()
        if after is NOW:
            self._network.offer(self)
        else:
            after.when_ready(self._began)
        return self

    def _take_up(self) -> None:
        network, bindings = self._network, self.bindings
        bundle = self.bundle = bindings.shared
        if bundle is not None:
            bundle.member = self
        self.ticket, self.deadline_s, self.group_count = bindings.ticket, self.stop.deadline_s, 0
        self.row_count, self.key = network.rows_of(bindings.inputs, network.batched_inputs)
        if bundle is not None:
            self.row_count = bundle.row_count
        if network.timeout_s:
            now_s = network.clock.now_s()
            self.begin_by_s = begin_by(now_s, network.timeout_s, self.deadline_s, network.service_s)

    def _began(self, error: BaseException | None) -> None:
        if error is None:
            self._network.offer(self)
        else:
            self.end(self._after, error)

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        if not self.group_count:
            return "waiting for a batch"
        return f"in a batch of {self.group_count} requests"

    @property
    def stage(self) -> str:
        """The name of what it is in, for messages."""
        return "batch" if self.group_count else "collect"

    def on_stop(self) -> None:
        """Leave those that wait, or tell the run that it shares; a listener of its Stop.

        It may come late, when the slot is another run's, which is only dropped if it was stopped.
        """
        joined = self.joined
        if self._network.drop(self):
            try:
                hand_over(self.end, NOW, self.stop.error)
            except MemoryError:  # for the call itself
                self.end(NOW, self.stop.error)
        elif joined is not None:
            joined.stop_if_all_have()

    def take(self, group_count: int) -> None:
        """Begin, in a run of that number of requests; locked."""
        self.group_count = group_count
        if self.bundle is not None:
            self.bundle.take()

    def end(self, ready: Ready, error: BaseException | None) -> None:
        """Hand on that no host code works for it any more; once.

        If it raises, that was not done.
        """
        then, self._then = self._then, None
        assert then is not None
        try:
            self._leave_place()
        except Exception as raised:  # no memory: those that wait come first
            error = error or raised
        try:
            hand_over(then, ready, error)
        except Exception:  # no memory for the call: nothing was handed over
            self._then = then
            raise

    def _leave_place(self) -> None:
        self.joined = None
        bundle, self.bundle = self.bundle, None
        if bundle is not None:
            self.bindings.shared = None  # which knows its run, and that this
            bundle.end()
        self.stop.forget(self.on_stop)

    def hop_failed(self, error: BaseException) -> None:
        """End: there was no memory for the call that was to do that."""
        self.end(NOW, self.stop.error or error)
