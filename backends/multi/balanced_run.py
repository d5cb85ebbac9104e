"""BalancedRun: one run that waits for a device of MULTI or has one, and the next if that fails."""

from __future__ import annotations

import dataclasses
import logging
from typing import Protocol

from ...executors import NOW, hand_over
from ...runtime.network.replicated_run import ReplicatedRun
from ...runtime.runs.admission import Ticket
from .balance import DeviceLoad
from .member import Member

__all__ = ["BalancedRun"]

_log = logging.getLogger("aioinfer.MULTI")


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
        """Note that a device is done with a run; True: the run goes on elsewhere.

        Raises only where the run does not go on.
        """

    def forget(self, run: BalancedRun) -> None:
        """Note that no device has a run, without measuring it."""

    def hop_failed(self, error: BaseException) -> None:
        """Balance all the same: there was no memory for the call that was to do that."""


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
        """Begin on a device; if it raises, nothing works for the run, and it has not ended."""
        assert isinstance(load, Member)
        self._member = load
        try:
            load.network.start_run(self.bindings, self.stop, NOW, self._on_end)
        except BaseException as refused:
            self._ended(NOW, refused)

    def _over(self, error: BaseException | None) -> None:
        member, goes_on = self._member, False
        assert member is not None
        try:
            goes_on = self._network.over(self, member, error)
            if not goes_on and self.bindings.profile:
                self._name_device(member)
        except Exception as raised:  # no memory for what is noted: the caller has an outcome
            _log.warning("%r is not measured: %r", self, raised)
            self._network.forget(self)
        if not goes_on:
            self._end(NOW, error)
        self._balance()

    def _name_device(self, member: Member) -> None:
        """Say of each node that was measured where that was."""
        profile = self.bindings.profile
        if profile:
            profile[:] = [
                dataclasses.replace(entry, name=f"{member.name}: {entry.name}") for entry in profile
            ]

    def _balance(self) -> None:
        """Have others begin that wait. Never raises: by now the slot may be another run's."""
        network = self._network
        try:
            if network.has_waiting:
                hand_over(network.balance)
        except Exception as raised:  # no memory for the call
            network.hop_failed(raised)

    def hop_failed(self, error: BaseException) -> None:
        """End: there was no memory for a call to this run, for which nothing works."""
        self._network.forget(self)
        if self._then is not None:
            self._end(NOW, self.stop.error or error)
        self._balance()
