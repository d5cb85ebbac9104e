"""JoinedRun: the rows of several requests in one run of the network inside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from ...executors import NOW, Lane, Ready, TaskExecutor
from ...runtime.network.sub_request import InnerNetwork
from ...runtime.runs.bindings import NO_TENSORS, Bindings, RunProfile
from ...runtime.runs.run_admission import RunAdmission
from ...runtime.runs.stage import Stop, new_stop_word
from ...runtime.tracing.recorder import SpanRecorder
from .rows import join_rows, split_rows

__all__ = ["JoinedMember", "JoinedRun", "Surroundings"]


class JoinedMember(Protocol):
    """What a joined run asks of a request whose rows it has."""

    bindings: Bindings
    stop: Stop
    row_count: int
    key: Hashable

    def end(self, ready: Ready, error: BaseException | None) -> None:
        """Tell that no host code works for it any more, and the token of what the device does."""


class Surroundings(Protocol):
    """What a joined run asks of its network."""

    @property
    def compiled(self) -> InnerNetwork:
        """The network that the joined rows go through."""

    @property
    def admission(self) -> RunAdmission[Any]:
        """Whose recorder is told what is copied."""

    batched_inputs: Sequence[str]
    batched_outputs: frozenset[str]

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Make an array for the rows of several members."""

    def copier(self, size_bytes: int) -> TaskExecutor:
        """Choose where so much is copied."""


class JoinedRun:
    """One run for two or more members; ``over`` is called once the device is done with it.

    It is stopped when all of its members are; one that is stopped alone is answered, and its rows
    are computed with the others'. If the run fails, each member is run by itself, so that one bad
    item fails alone. Every member is told of its end exactly once.
    """

    def __init__(
        self,
        members: Sequence[JoinedMember],
        network: Surroundings,
        over: Callable[[], None],
    ) -> None:
        self._members, self._network, self._over = members, network, over
        self._stop = Stop()
        self._stop.word = new_stop_word()
        self._left = len(members)
        self._lock = threading.Lock()
        self._errors: list[BaseException | None] = []
        """What was wrong with the memory that each member has bound."""
        self._listeners = [partial(self._member_stopped, member.stop) for member in members]
        first = members[0].bindings
        profile = None if first.profile is None else RunProfile()
        self._bindings = Bindings(
            NO_TENSORS, first.ticket, first.run_id, profile=profile, arrived_ns=first.arrived_ns
        )
        self._input_bytes = sum(
            member.bindings.inputs[name].nbytes
            for member in members
            for name in network.batched_inputs
        )

    def start(self) -> None:
        """Join the rows and send them to the network inside. Never raises or blocks."""
        for member, listener in zip(self._members, self._listeners, strict=True):
            member.stop.when_set(listener)
        try:
            self._network.copier(self._input_bytes).run(self._join, NOW, self._joined)
        except BaseException as refused:
            self._ended(refused)

    def _member_stopped(self, stop: Stop) -> None:
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            assert stop.error is not None
            self._stop.set(stop.error)

    def _join(self, _lane: Lane) -> Ready:
        self._stop.raise_if_set()
        network = self._network
        inputs = [member.bindings.inputs for member in self._members]
        self._bindings.inputs = join_rows(inputs, network.batched_inputs, network.empty)
        recorder = network.admission.recorder
        for member in self._members:
            given = member.bindings.inputs
            size_bytes = sum([given[name].nbytes for name in network.batched_inputs])
            member.bindings.note_copied(recorder, "join", "host", size_bytes)
        return NOW

    def _joined(self, _ready: Ready, error: BaseException | None) -> None:
        if error is not None:
            self._ended(error)
            return
        try:
            self._network.compiled.start_run(self._bindings, self._stop, NOW, self._ran)
        except BaseException as refused:
            self._ended(refused)

    def _ran(self, ready: Ready, error: BaseException | None) -> None:
        ready.when_ready(lambda late: self._ended(error or late))

    def _ended(self, error: BaseException | None) -> None:
        """Answer the members; the device is done with the run."""
        for member, listener in zip(self._members, self._listeners, strict=True):
            member.stop.forget(listener)
        self._listeners.clear()  # they hold this run
        self._bindings.inputs = NO_TENSORS
        self._over()
        if error is None:
            copied_bytes = sum(_bound_bytes(member.bindings) for member in self._members)
            try:
                self._network.copier(copied_bytes).run(self._split, NOW, self._was_split)
            except BaseException as refused:
                self._was_split(NOW, refused)
        elif self._stop.error is not None:
            self._end_all(error)
        else:
            self._run_each(error)

    def _split(self, _lane: Lane) -> Ready:
        members, results = self._members, self._bindings.results
        counts = [member.row_count for member in members]
        split = split_rows(results, self._network.batched_outputs, counts)
        results.clear()
        for member, own in zip(members, split, strict=True):
            recorder = self._network.admission.recorder
            self._errors.append(_deliver(member.bindings, own, self._bindings, recorder))
        return NOW

    def _was_split(self, _ready: Ready, error: BaseException | None) -> None:
        if error is not None:
            self._end_all(error)
            return
        for member, own_error in zip(self._members, self._errors, strict=True):
            member.end(NOW, own_error or member.stop.error)

    def _end_all(self, error: BaseException) -> None:
        for member in self._members:
            member.end(NOW, member.stop.error or error)

    def _run_each(self, error: BaseException) -> None:
        """Find out whose fault it was."""
        note = f"it had been run together with {len(self._members) - 1} other requests, and"
        for member in self._members:
            if member.stop.error is not None:
                member.end(NOW, member.stop.error)
                continue
            then = partial(_ended_alone, member, f"{note} that run failed with {error!r}")
            try:
                self._network.compiled.start_run(member.bindings, member.stop, NOW, then)
            except BaseException as refused:
                then(NOW, refused)


def _ended_alone(
    member: JoinedMember, note: str, ready: Ready, error: BaseException | None
) -> None:
    if error is not None and error is not member.stop.error:
        error.add_note(note)
    member.end(ready, error)


def _bound_bytes(bindings: Bindings) -> int:
    return sum(getattr(memory, "nbytes", 0) for memory in bindings.bound.values())


def _deliver(
    bindings: Bindings, own: dict[str, Any], joined: Bindings, recorder: SpanRecorder
) -> BaseException | None:
    """Hand a member its outputs; return what is wrong with the memory that it has bound."""
    if bindings.profile is not None and joined.profile is not None:
        bindings.profile.extend(joined.profile)
        bindings.profile.copies.extend(joined.profile.copies)
    try:
        for name, value in own.items():
            bindings.note_copied(recorder, "split", "host", bindings.deliver(name, value))
    except Exception as error:
        return error
    return None
