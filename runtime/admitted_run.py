"""One run on its way through a network: let in, in a slot, on to its last token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..executors import NOW, Ready, Then, hop
from .bindings import Bindings
from .graph_run import GraphRun
from .pipeline import PipelineRun, Stop, nobody
from .slot import Slot

if TYPE_CHECKING:
    from .run_admission import RunAdmission

__all__ = ["AdmittedRun"]

_plain_start = Slot.start


class AdmittedRun(PipelineRun):
    """A run that goes through the slot which its network's admission gives it.

    It goes through the stages itself; where slots start runs in a way of their own, ``own_run``
    does. This class is the run of an outer network, and a request's is ``RequestRun``.
    """

    __slots__ = ("admission", "after", "bindings", "own_run", "slot")

    def __init__(
        self, admission: RunAdmission, bindings: Bindings, stop: Stop, after: Ready, then: Then
    ) -> None:
        super().__init__((), stop, then, admission.recorder, bindings.mark())
        self.admission, self.bindings, self.after = admission, bindings, after
        self.slot: Slot | None = None
        """Where it is; None before and after. Written by the admission."""
        self.own_run: PipelineRun | GraphRun | None = None

    @property
    def place(self) -> str:
        own_run = self.own_run
        if own_run is not None:
            return own_run.place
        return super().place if self._stages else "waiting for a slot"

    def begin(self, slot: Slot) -> None:
        """Take the slot, and go through its stages unless the run has been stopped meanwhile."""
        slot.bindings, slot.stop = self.bindings, self.stop
        if self.stop.error is not None:
            self.ended(self.after, self.stop.error)
            return
        if type(slot).start is _plain_start:
            self._stages = slot.stages
            self._step(self.after, None)
            return
        try:
            started = slot.start(self.stop, self.after, self.ended, self._recorder)
        except Exception as error:  # the backend's own; the run has not begun
            self.ended(self.after, error)
            return
        self.admission.note_own_run(self, started)

    def stopped(self) -> None:
        """Leave the queue, if it still waits in it; a listener of its Stop."""
        self.admission.drop(self)

    def dropped(self) -> None:
        """Tell that it has left the queue without a slot."""
        self.admission.leave(self)
        then, self._then = self._then, nobody
        hop(then, self.after, self.stop.error)

    def ended(self, ready: Ready, error: BaseException | None) -> None:
        """Free the slot when the last token fires, before anybody is told, and tell."""
        then, self._then = self._then, nobody  # an ended run keeps nobody alive
        if ready is NOW:
            if error is None:
                self.note_time()
            self.admission.free(self)
        else:
            ready.when_ready(self._released)
        hop(then, ready, error)

    def note_time(self) -> None:
        """Tell how long the stages took, for the choice which runs stay on their callers' threads.

        Only of runs that have ended well, without anything left on a device.
        """
        gate = self.admission.gate
        if gate is not None:
            gate.time_of(self.bindings.inputs).note(self.service_ns)

    def _released(self, _late: BaseException | None) -> None:
        self.admission.free(self)
