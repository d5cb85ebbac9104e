"""BalancedRun: one run that waits for a device of MULTI or has one, and the next if that fails."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from ...executors import NOW
from ...runtime.network.replicated_run import ReplicatedRun
from ...runtime.runs.admission import Ticket
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


class BalancedRun(ReplicatedRun):
    """One run that waits for a device or has one."""

    def __init__(self, network: Balancing) -> None:
        super().__init__(network.offer, network.drop)
        self._network = network
        self.ticket: Ticket = (0, 0)
        self.tried: list[DeviceLoad] = []
        """The devices on which it has failed."""
        self._member: Member | None = None

    def release(self) -> None:
        self._member = None
        self.tried.clear()

    @property
    def place(self) -> str:
        member = self._member
        return "waiting for a device" if member is None else f"on {member.name}"

    @property
    def stage(self) -> str:
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

    def _over(self, error: BaseException | None) -> None:
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
