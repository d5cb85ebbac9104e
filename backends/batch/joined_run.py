"""JoinedRun: the rows of several requests in one run of the network inside."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...executors import NOW, Lane, Ready, TaskExecutor, Then
from ...runtime.network.sub_request import InnerNetwork
from ...runtime.runs.bindings import NO_TENSORS, Bindings, RunProfile
from ...runtime.runs.error_frames import own_error
from ...runtime.runs.run_admission import RunAdmission
from ...runtime.runs.stage import Stop, new_stop_word
from ...runtime.tracing.recorder import SpanRecorder
from .bundle import Bundle, failed_together
from .length_padding import LengthPadding
from .member import SharedRun
from .part import Part
from .rows import join_rows, split_rows

__all__ = ["AloneRun", "JoinedMember", "JoinedRun", "Surroundings"]


class JoinedMember(Protocol):
    """What a joined run asks of a request whose rows it has."""

    bindings: Bindings
    stop: Stop
    row_count: int
    key: Hashable
    joined: SharedRun | None
    """The run that it shares, from the run's start to the member's end."""
    bundle: Bundle | None
    """The calls that it is, if it is more than one request; complete."""

    def end(self, ready: Ready, error: BaseException | None) -> None:
        """Tell that no host code works for it any more, and the token of what the device does."""


class Surroundings(Protocol):
    """What a joined run asks of its network."""

    @property
    def compiled(self) -> InnerNetwork:
        """The network that the joined rows go through."""

    @property
    def admission(self) -> RunAdmission[Any]:
        """Its recorder notes what is copied."""

    batched_inputs: Sequence[str]
    batched_outputs: frozenset[str]
    padding: LengthPadding | None
    """How members of several lengths share a run; None: theirs are equal."""

    def start_inside(self, bindings: Bindings, stop: Stop, then: Then) -> None:
        """Send a run to the network inside, or carry it; as its ``start_run``."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Make an array for the rows of several members."""

    def give_back(self, arrays: Iterable[np.ndarray[Any, Any]]) -> None:
        """Take such arrays back, which no run reads any more."""

    def copier(self, size_bytes: int) -> TaskExecutor:
        """Choose where so much is copied."""


class JoinedRun:
    """One run for two or more members; ``over`` is called once the device is done with it.

    It is stopped when all of its members are; one that is stopped alone is answered, and its rows
    are computed with the others'. If the run fails, each member is run by itself, so that one bad
    item fails alone. Every member is ended exactly once, also where there is no memory for a
    call on the way (``hop_failed``). ``over`` may be called again.
    """

    def __init__(
        self,
        members: Sequence[JoinedMember],
        network: Surroundings,
        over: Callable[[], None],
    ) -> None:
        self._members, self._network, self._over = members, network, over
        self._left = deque(members)
        """Those that this run is to end."""
        self._stop = Stop()
        self._stop.word = new_stop_word()
        self._errors: list[BaseException | None] = []
        """What was wrong with the memory that each member has bound."""
        first = members[0].bindings
        profile = None if first.profile is None else RunProfile()
        self._bindings = Bindings(
            NO_TENSORS,
            first.ticket,
            first.run_id,
            NO_TENSORS,
            profile=profile,
            arrived_ns=first.arrived_ns,
        )
        self._inputs: list[Mapping[str, Any]] = []
        """Of each request, in the order of its rows."""
        for member in members:
            if member.bundle is None:
                self._inputs.append(member.bindings.inputs)
            else:
                self._inputs += [part.inputs for part in member.bundle.parts]
        if profile is not None:
            profile.request_count = len(self._inputs)
        arrays = [self._inputs[0][name] for name in network.batched_inputs]
        self._row_bytes: int = sum([array.nbytes // len(array) for array in arrays])
        self._length = 0
        """What sequences of the joined inputs are long, if they may be padded."""

    def start(self) -> None:
        """Join the rows and send them to the network inside. Never raises or blocks."""
        try:
            for member in self._members:
                member.joined = self
            self.stop_if_all_have()  # those that were stopped before they knew whom to tell
            size_bytes = sum(map(self._copied_bytes, self._members))
            self._network.copier(size_bytes).run(self._join, NOW, self._joined)
        except BaseException as refused:
            self._ended(refused)

    def stop_if_all_have(self) -> None:
        """Stop the run if all members are stopped. Thread-safe."""
        error: BaseException | None = None
        for member in self._members:
            error = member.stop.error
            if error is None:
                return
        assert error is not None
        self._stop.set(error)

    def _join(self, _lane: Lane) -> Ready:
        self._stop.raise_if_set()
        network = self._network
        padding = network.padding
        join = join_rows if padding is None else padding.join_rows
        joined = self._bindings.inputs = join(self._inputs, network.batched_inputs, network.empty)
        if padding is not None:
            self._length = padding.length_of(joined)
        recorder = network.admission.recorder
        for member in self._members:
            size_bytes = self._copied_bytes(member)
            member.bindings.note_copied(recorder, "join", "host", size_bytes)
        return NOW

    def _copied_bytes(self, member: JoinedMember) -> int:
        """Count the bytes of a member's own rows."""
        if self._network.padding is None:
            return self._row_bytes * member.row_count
        bundle = member.bundle
        given = [member.bindings] if bundle is None else bundle.parts
        copied_bytes: int = sum(array.nbytes for item in given for array in item.inputs.values())
        return copied_bytes

    def _joined(self, _ready: Ready, error: BaseException | None) -> None:
        if error is not None:
            self._ended(error)
            return
        try:
            self._network.start_inside(self._bindings, self._stop, self._ran)
        except BaseException as refused:
            self._ended(refused)

    def _ran(self, ready: Ready, error: BaseException | None) -> None:
        ready.when_ready(lambda late: self._ended(error or late))

    def _ended(self, error: BaseException | None) -> None:
        """Answer the members; the device is done with the run."""
        joined, self._bindings.inputs = self._bindings.inputs, NO_TENSORS
        self._network.give_back(joined.values())
        self._over()
        if error is None:
            copied_bytes = self._shared_bytes() * (len(self._inputs) - 1)
            for member in self._members:
                if member.bindings.bound:
                    copied_bytes += _bound_bytes(member.bindings)
            try:
                self._network.copier(copied_bytes).run(self._split, NOW, self._was_split)
            except BaseException as refused:
                self._was_split(NOW, refused)
        elif self._stop.error is not None:
            self._end_all(error)
        else:
            self._run_each(error)

    def _shared_bytes(self) -> int:
        """Count the bytes of outputs that have no rows; each request but one gets a copy."""
        batched = self._network.batched_outputs
        return sum(
            int(getattr(value, "nbytes", 0))
            for name, value in self._bindings.results.items()
            if name not in batched
        )

    def _split(self, _lane: Lane) -> Ready:
        members, joined = self._members, self._bindings
        results, padding = joined.results, self._network.padding
        if padding is not None:
            padding.check(results, self._length)
        counts = [member.row_count for member in members]
        split = split_rows(results, self._network.batched_outputs, counts)
        results.clear()
        is_profiled = joined.profile is not None
        for member, own in zip(members, split, strict=True):
            bindings = member.bindings
            if member.bundle is not None:
                member.bundle.copy_shared(own)
            elif padding is not None:
                padding.cut(own, padding.length_of(bindings.inputs))
            if bindings.bound or is_profiled:
                recorder = self._network.admission.recorder
                self._errors.append(_deliver(bindings, own, joined, recorder))
            else:
                bindings.results = own
                self._errors.append(None)
        return NOW

    def _was_split(self, _ready: Ready, error: BaseException | None) -> None:
        if error is not None and self._stop.error is not None:
            self._end_all(error)
            return
        if error is not None:  # outputs that fit no member may be one member's fault
            self._run_each(error)
            return
        left = self._left
        for misfit in self._errors:
            left[0].end(NOW, misfit or left[0].stop.error)
            left.popleft()

    def _end_all(self, error: BaseException) -> None:
        left = self._left
        while left:
            left[0].end(NOW, left[0].stop.error or own_error(error))
            left.popleft()

    def hop_failed(self, error: BaseException) -> None:
        """End those that are left: there was no memory for a call to this run."""
        try:
            self._end_all(error)
        finally:
            self._over()

    def _run_each(self, error: BaseException) -> None:
        """Find out whose fault it was."""
        note = failed_together(len(self._inputs) - 1, error)
        left, inside = self._left, self._network.compiled
        while left:
            member = left[0]
            if member.stop.error is not None:
                member.end(NOW, member.stop.error)
                left.popleft()
            elif member.bundle is not None:
                retry = BundleRetry(member, member.bundle.parts, inside, note)
                left.popleft()
                retry.start()
            else:
                alone = AloneRun(member, note=note)
                left.popleft()
                alone.start(inside.start_run)


class AloneRun:
    """One member in a run of its own, which ends the member exactly once.

    ``over`` is called when the device is done with it, and may be called again.
    """

    def __init__(
        self, member: JoinedMember, over: Callable[[], None] | None = None, note: str = ""
    ) -> None:
        self._member, self._over, self._note = member, over, note
        self._has_ended = False

    def start(self, start_run: Callable[[Bindings, Stop, Ready, Then], None]) -> None:
        """Send it to a network. Never raises or blocks."""
        member = self._member
        try:
            start_run(member.bindings, member.stop, NOW, self._ran)
        except BaseException as refused:
            self._ran(NOW, refused)

    def _ran(self, ready: Ready, error: BaseException | None) -> None:
        if error is not None and self._note and error is not self._member.stop.error:
            error.add_note(self._note)
        self._member.end(ready, error)
        self._has_ended = True
        if self._over is not None:
            ready.when_ready(self._fired)

    def _fired(self, _late: BaseException | None) -> None:
        if self._over is not None:
            self._over()

    def hop_failed(self, error: BaseException) -> None:
        """End it: there was no memory for the call that was to do that."""
        if not self._has_ended:
            self._member.end(NOW, self._member.stop.error or error)
            self._has_ended = True
        self._fired(None)


class BundleRetry:
    """The calls of one member, each in a run of its own; the member ends with the last of them."""

    def __init__(
        self, member: JoinedMember, parts: Sequence[Part], network: InnerNetwork, note: str
    ) -> None:
        self._member, self._network = member, network
        self._runs = [_PartRun(self, part, note) for part in parts]
        self._left = set(self._runs)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Send all of them to the network. Never raises or blocks."""
        member = self._member
        if not self._runs:  # stopped just now, and all of them answered
            member.end(NOW, member.stop.error)
        for run in self._runs:
            run.start(member, self._network)

    @property
    def stopped(self) -> BaseException | None:
        """Why the member is stopped, if it is."""
        return self._member.stop.error

    def leave(self, run: _PartRun) -> None:
        """Note that a call is over. Thread-safe."""
        with self._lock:
            self._left.discard(run)
            is_last = not self._left
        if is_last:
            self._member.end(NOW, self.stopped)


class _PartRun:
    """One call of a bundle in a run of its own."""

    def __init__(self, retry: BundleRetry, part: Part, note: str) -> None:
        self._retry, self._part, self._note = retry, part, note
        self._bindings: Bindings | None = None
        self._error: BaseException | None = None
        self._has_ended = False

    def start(self, member: JoinedMember, network: InnerNetwork) -> None:
        """Send it to the network. Never raises or blocks."""
        part, of_all = self._part, member.bindings
        try:
            if part.is_counted:  # it was given up
                self._ended(None)
                return
            self._bindings = Bindings(part.inputs, of_all.ticket, part.run_id)
            self._bindings.arrived_ns = part.arrived_ns
            network.start_run(self._bindings, member.stop, NOW, self._ran)
        except BaseException as refused:
            self._ended(refused)

    def _ran(self, ready: Ready, error: BaseException | None) -> None:
        self._error = error
        ready.when_ready(self._ended)

    def _ended(self, late: BaseException | None) -> None:
        if self._has_ended:
            return
        part, error = self._part, self._error or late
        if error is None and self._bindings is not None:
            part.outputs = self._bindings.results
        elif error is not None and error is not self._retry.stopped:
            error.add_note(self._note)
            part.error = error
        self._retry.leave(self)
        self._has_ended = True

    def hop_failed(self, error: BaseException) -> None:
        """End it: there was no memory for the call that was to do that."""
        self._ended(error)


def _bound_bytes(bindings: Bindings) -> int:
    return sum(getattr(memory, "nbytes", 0) for memory in bindings.bound.values())


def _deliver(
    bindings: Bindings, own: dict[str, Any], joined: Bindings, recorder: SpanRecorder
) -> BaseException | None:
    """Hand a member its outputs; return what is wrong with the memory that it has bound."""
    if bindings.profile is not None and joined.profile is not None:
        bindings.profile.extend(joined.profile)
        bindings.profile.copies.extend(joined.profile.copies)
        bindings.profile.request_count = joined.profile.request_count
    try:
        for name, value in own.items():
            bindings.note_copied(recorder, "split", "host", bindings.deliver(name, value))
    except Exception as error:
        return error
    return None
