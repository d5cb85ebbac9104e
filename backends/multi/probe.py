"""Probe: one run with made-up inputs, which shows whether a device of MULTI works again."""

from __future__ import annotations

import logging
from typing import Protocol

from ...errors import ClosedError
from ...executors import NOW, Lane, Ready, TaskExecutor
from ...runtime.network.warm_up import made_up_inputs
from ...runtime.runs.admission import ticket_of
from ...runtime.runs.bindings import WARMING, Bindings
from ...runtime.runs.stage import Stop
from .member import Member

__all__ = ["Probe"]

_log = logging.getLogger("aioinfer.MULTI")


class Probing(Protocol):
    """What a probe asks of its network."""

    probe_stop: Stop
    """Set when it closes."""

    @property
    def probes(self) -> TaskExecutor:
        """Where inputs are made up."""

    def tried(self, member: Member, error: BaseException | None) -> None:
        """Take a device in again, or have it tried later."""


class Probe:
    """One try of a device. It calls ``network.tried`` once, unless the network closes."""

    def __init__(self, network: Probing, member: Member) -> None:
        self._network, self._member = network, member

    def begin(self) -> None:
        try:
            self._network.probes.run(self._run, NOW, self._made)
        except ClosedError as refused:
            _log.debug("%s is not tried again: %r", self._member.name, refused)

    def _run(self, _lane: Lane) -> Ready:
        member, stop = self._member, self._network.probe_stop
        member.is_tried = True  # a close that has not stopped it yet sees this
        stop.raise_if_set()
        inputs = made_up_inputs(member.network.model_inputs, {})
        bindings = Bindings(inputs, ticket_of(0), arrived_ns=WARMING)
        member.network.start_run(bindings, stop, NOW, self._ran)
        return NOW

    def _made(self, _ready: Ready, error: BaseException | None) -> None:
        if error is not None:
            self._network.tried(self._member, error)

    def _ran(self, ready: Ready, error: BaseException | None) -> None:
        ready.when_ready(lambda late: self._network.tried(self._member, error or late))

    def hop_failed(self, error: BaseException) -> None:
        """Have it tried later: there was no memory for a call of those above."""
        self._network.tried(self._member, error)
