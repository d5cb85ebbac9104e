"""A run that a callback starts while the device is busy with the request's run before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...errors import AioInferError, ClosedError
from ...executors import hop
from .run import Run

__all__ = ["ParkedRun"]


class ParkingRequest(Protocol):
    """The request, as far as its parked run is concerned."""

    def unpark(self, parked: ParkedRun) -> bool:
        """Take back what was parked; False: it was not, or is about to be launched."""


class ParkedRun:
    """A run that is kept until its request is idle; nothing works for it. Thread-safe."""

    __slots__ = ("_request", "run")

    def __init__(self, run: Run, request: ParkingRequest) -> None:
        self.run, self._request = run, request

    def park(self, keep: Callable[[ParkedRun], bool]) -> bool:
        """Wait for the request's run before to end, if ``keep`` still finds it under way.

        The deadline counts meanwhile, and the caller is told at once if the run is stopped. Raises
        ClosedError.
        """
        run = self.run
        run.admission.expect(run)
        run.is_parked = True
        if run.deadline is not None:
            run.start_timer()
        if not keep(self):
            run.is_parked = False
            run.admission.leave(run)
            return False
        run.allow_callback()
        run.stop.when_set(self._leave)
        return True

    def launch(self) -> None:
        """Enter the network now that the run before has ended, and never raise."""
        run = self.run
        run.stop.forget(self._leave)
        run.is_parked = False
        if run.stop.error is not None:
            self._end()
            return
        try:
            run.start(may_refuse=True)
        except AioInferError as refused:  # closed or overloaded; of which its caller is told
            run.is_counted = isinstance(refused, ClosedError)
            run.finish(refused)

    def _leave(self) -> None:
        """End, as the run is stopped; a listener of its Stop."""
        if self._request.unpark(self):
            hop(self._end)

    def _end(self) -> None:
        self.run.is_counted = True
        self.run.finish(self.run.stop.error)
