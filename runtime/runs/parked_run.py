"""A run that a callback starts while the device is busy with the request's run before."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import AioInferError, ClosedError
from ...executors import hop
from .run import Run

__all__ = ["ParkedRun"]


class ParkedRun:
    """A run that is kept until its request is idle; nothing works for it. Thread-safe.

    ``unpark`` has the request give it up; it returns False if it is about to be launched, which
    the request notes in ``is_taken``.
    """

    __slots__ = ("_unpark", "is_taken", "run")

    def __init__(self, run: Run, unpark: Callable[[ParkedRun], bool]) -> None:
        self.run, self._unpark, self.is_taken = run, unpark, False

    def park(self, keep: Callable[[ParkedRun], bool]) -> bool:
        """Wait for the request's run before to end, if ``keep`` still finds it under way.

        The deadline counts meanwhile, and the caller is answered at once if the run is stopped.
        Raises ClosedError.
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
        except AioInferError as refused:  # closed or overloaded, which the caller gets as its error
            run.is_counted = isinstance(refused, ClosedError)
            run.finish(refused)

    def _leave(self) -> None:
        """End, as the run is stopped; a listener of its Stop."""
        if self._unpark(self):
            hop(self._end)

    def _end(self) -> None:
        run = self.run
        error = run.stop.error
        if error is not None and not isinstance(error, ClosedError):
            run.admission.count_outcome(run, error)  # a stop may have found it launched
        run.is_counted = True
        run.finish(error)
