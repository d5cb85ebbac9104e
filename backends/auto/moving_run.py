"""MovingRun: one run on the device that serves, and on the next one if that fails."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from ...errors import ClosedError
from ...executors import NOW
from ...runtime.network.replicated_run import ReplicatedRun
from .candidate import Candidate

__all__ = ["MovingRun"]


class Moving(Protocol):
    """What a run asks of its network."""

    serving: Candidate | None

    def serve(self, run: MovingRun) -> None:
        """Give a run to the device that serves, or have it wait for the next one."""

    def count(self, candidate: Candidate, arrival: object) -> None:
        """Note that a device has taken a run; an arrival that is known by now counts once."""

    def drop(self, run: MovingRun) -> bool:
        """Take a stopped run out of those that wait for a device; False: it has one."""

    def goes_on(self, run: MovingRun, candidate: Candidate, error: BaseException) -> bool:
        """Decide whether a run that has failed goes on; if so, another device is to serve."""


class MovingRun(ReplicatedRun):
    """One run that waits for a device or has one."""

    def __init__(self, network: Moving) -> None:
        super().__init__(network.serve, network.drop)
        self._network = network
        self.tried: list[Candidate] = []
        """The devices on which it has failed."""
        self.failure: BaseException | None = None
        """How it has failed last."""
        self._candidate: Candidate | None = None
        self._arrival: object = None

    def release(self) -> None:
        self._candidate = self.failure = self._arrival = None
        self.tried.clear()

    @property
    def place(self) -> str:
        candidate = self._candidate
        return "waiting for a device" if candidate is None else f"on {candidate.device}"

    @property
    def stage(self) -> str:
        candidate = self._candidate
        return "device" if candidate is None else candidate.device

    def go(self, candidate: Candidate) -> None:
        """Begin on a device, or on the one that serves if that has just been closed."""
        network = candidate.network
        arrival = self._arrival = object()
        self._candidate = candidate
        candidate.arriving.add(arrival)
        candidate.running.add(self)
        try:
            if network is None:
                raise ClosedError(f"{candidate.device} does not serve any more")
            network.start_run(self.bindings, self.stop, NOW, self._on_end)
        except BaseException as refused:
            if isinstance(refused, ClosedError) and self._network.serving is not candidate:
                candidate.arriving.discard(arrival)
                candidate.running.discard(self)
                self._network.serve(self)
            else:
                self._over(refused)
            return
        with suppress(MemoryError):  # which loses a count; the device has the run
            if arrival in candidate.arriving:
                self._network.count(candidate, arrival)  # else that was done when it ended

    def go_on(self, error: BaseException | None) -> None:
        """Begin after a wait for a device, or end for want of one."""
        self.stop.forget(self.drop)
        if error is None:
            self._network.serve(self)
        else:
            self.end(self.failure or error)

    def end(self, error: BaseException) -> None:
        """End without a device, for want of one."""
        self._end(NOW, self.stop.error or error)

    def _over(self, error: BaseException | None) -> None:
        network, candidate = self._network, self._candidate
        assert candidate is not None
        with suppress(MemoryError):
            if self._arrival in candidate.arriving:
                network.count(candidate, self._arrival)
        candidate.running.discard(self)
        if error is not None:
            self.failure = error
            self.tried.append(candidate)
            if network.goes_on(self, candidate, error):
                self._candidate = None
                network.serve(self)
                return
        self._end(NOW, error)

    def hop_failed(self, error: BaseException) -> None:
        """End: there was no memory for a call to this run, for which nothing works."""
        candidate = self._candidate
        if candidate is not None:
            candidate.arriving.discard(self._arrival)
            candidate.running.discard(self)
        if self._then is not None:
            self._end(NOW, self.stop.error or self.failure or error)
