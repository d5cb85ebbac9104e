"""BalancedRun: one run that waits for a device of MULTI or has one, and the next if that fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from ...executors import NOW, Ready, Then, hop
from ...runtime.runs.admission import Ticket
from ...runtime.runs.slot import Slot
from ...runtime.runs.stage import Stage, Stop
from ...runtime.tracing.recorder import SpanRecorder
from .balance import DeviceLoad
from .member import Member

__all__ = ["BalancedRun"]


class Balancing(Protocol):
    """What a run asks of its network."""

    @property
    def has_waiting(self) -> bool:
        """True if runs wait for a device."""

    def offer(self, run: BalancedRun) -> None:
        """Have a run wait for a device, which it may get at once."""

    def balance(self) -> None:
        """Start what is to start now of the runs that wait."""

    def drop(self, run: BalancedRun) -> bool:
        """Take a stopped run out of those that wait; False: it has a device."""

    def over(self, run: BalancedRun, member: Member, error: BaseException | None) -> bool:
        """Note that a device is done with a run; True: the run goes on elsewhere."""


class BalancedRun(Slot):
    """One run that waits for a device or has one."""

    stages: Sequence[Stage] = ()

    def __init__(self, network: Balancing) -> None:
        self._network = network
        self.ticket: Ticket = (0, 0)
        self.tried: list[DeviceLoad] = []
        """The devices on which it has failed."""
        self._member: Member | None = None
        self._after: Ready = NOW
        self._then: Then | None = None
        self._on_end: Then = self._ended

    def start(self, stop: Stop, after: Ready, then: Then, recorder: SpanRecorder) -> BalancedRun:
        self._after, self._then = after, then
        self.ticket = self.bindings.ticket
        if after is NOW:
            self._network.offer(self)
        else:
            after.when_ready(self._began)
        return self

    def release(self) -> None:
        self._member = None
        self.tried.clear()

    def _began(self, error: BaseException | None) -> None:
        if error is None:
            self._network.offer(self)
        else:
            self._end(self._after, error)

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        member = self._member
        return "waiting for a device" if member is None else f"on {member.name}"

    @property
    def stage(self) -> str:
        """The name of what it is in, for messages."""
        member = self._member
        return "balance" if member is None else member.name

    def go(self, load: DeviceLoad) -> None:
        """Begin on a device."""
        assert isinstance(load, Member)
        self._member = load
        try:
            load.network.start_run(self.bindings, self.stop, NOW, self._on_end)
        except BaseException as refused:
            self._ended(NOW, refused)

    def drop(self) -> None:
        """Leave those that wait, if it was stopped and does; a listener of its Stop."""
        if self._network.drop(self):
            hop(self._end, NOW, self.stop.error)

    def _ended(self, ready: Ready, error: BaseException | None) -> None:
        if ready is NOW:
            self._over(error)
        else:
            ready.when_ready(lambda late: self._over(error or late))

    def _over(self, error: BaseException | None) -> None:
        """End, or go on on another device; nothing works for it any more."""
        network, member = self._network, self._member
        assert member is not None
        if not network.over(self, member, error):
            profile = self.bindings.profile
            if profile:
                profile[:] = [
                    dataclasses.replace(entry, name=f"{member.name}: {entry.name}")
                    for entry in profile
                ]
            self._end(NOW, error)
        if network.has_waiting:
            network.balance()

    def _end(self, ready: Ready, error: BaseException | None) -> None:
        then, self._then = self._then, None
        assert then is not None
        then(ready, error)
