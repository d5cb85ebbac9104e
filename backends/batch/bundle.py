"""Awaited calls of one event loop that are one run of the network.

A bundle is gathered, then launched or carried: launched, it waits in the collector as any other run
does, and more calls may join it there; carried, it is run on the thread of its loop. Calls join and
leave on that thread alone; the network's lock is between them and the threads that launch and take
the bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from threading import Lock
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np

from ...errors import AioInferError, GraphError, RequestCancelledError
from ...executors import hop
from ...runtime.loops.completion import FindWaker
from ...runtime.loops.inline_turn import InlineTurn
from ...runtime.runs.admission import ticket_of
from ...runtime.runs.bindings import NO_TENSORS, Bindings
from ...runtime.runs.error_frames import own_error
from ...runtime.runs.inline_route import InlineRoute
from ...runtime.runs.run import Run
from ...runtime.runs.run_admission import RunAdmission
from .collector import Collector, Pace
from .length_padding import LengthPadding
from .part import Part, wake_all
from .rows import RowsOf, check_lines, join_rows

__all__ = ["Bundle", "BundleNetwork", "Place", "failed_together"]


class BundleMember(Protocol):
    """What a bundle asks of the place where it waits."""

    row_count: int


class BundleNetwork(Protocol):
    """What bundles ask of their network."""

    admission: RunAdmission[Run]
    batched_inputs: Sequence[str]
    batched_outputs: frozenset[str]
    rows_of: RowsOf
    padding: LengthPadding | None
    most_rows: int
    pace: Pace
    run_count: int
    """How many runs are under way."""
    collecting: Lock
    """Held while what waits is read or changed."""

    collector: Collector[Any]
    run_ids: Iterator[int]
    """Number the calls."""

    def begin_runs(self) -> None:
        """Begin as many runs as may be under way now."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Make an array for the rows of several calls."""

    def give_back(self, arrays: Iterable[np.ndarray[Any, Any]]) -> None:
        """Take such arrays back, which no run reads any more."""

    def note_carried(self, age: int, run_ids: Sequence[int]) -> None:
        """Count a run that a loop has carried, and keep which requests shared it."""


class Bundle:
    """Calls of one event loop that are one run of the network. ``when_closed`` is called once."""

    def __init__(
        self,
        network: BundleNetwork,
        find_waker: FindWaker,
        when_closed: Callable[[Bundle], None] | None = None,
    ) -> None:
        self._network, self._find_waker, self._when_closed = network, find_waker, when_closed
        self.parts: list[Part] = []
        """Complete once it is closed; changed under the lock of what waits."""
        self.row_count = 0
        """Of all parts."""
        self.is_closed = False
        self.batched_outputs, self.padding = network.batched_outputs, network.padding
        self.member: BundleMember | None = None
        """Where it waits or runs; written by that."""
        self.run: Run | None = None
        """None while it is gathered."""
        self._gone_count = 0
        """How many were given up and are still among the parts."""
        self.is_over = False
        """All calls that were not given up are answered."""
        self._have_come = False
        """The calls were counted among those that came."""
        self._is_answered = False
        """No call is left to be answered by its run."""
        self._has_ended = False
        """Its run has left its place."""
        self.lines: Sequence[tuple[str, Any]] | None = None
        """The outputs, where each is as many rows as the inputs and each call gets its own."""
        self._unwoken: list[Part] = []
        """Calls that have their outcome, and whose event loop has not been woken for it."""

    def add(self, part: Part) -> bool:
        """Take one more call; False: it is closed, or has no room."""
        network, row_count = self._network, part.row_count
        with network.collecting:
            member = self.member
            if self.is_closed or self.row_count + row_count > network.most_rows:
                return False
            if member is None and self.run is not None:
                return False
            part.bundle = self
            self.parts.append(part)
            self.row_count += row_count
            if member is None:
                return True
            is_full = network.collector.grow(member, row_count)
            is_due = is_full and network.run_count < network.pace.most_count
        if is_due:
            hop(network.begin_runs)
        return True

    def launch(self, *, takes_more: bool = True) -> bool:
        """Send its calls to the network as one run; False: that took none, and told them so.

        On any thread, once. Only on that of its loop may it take more calls from then on.
        """
        with self._network.collecting:
            # A call may come, or leave, when it has its member and that does not wait yet.
            self.is_closed = self.is_closed or not takes_more
            if not self.parts:  # all have left
                self.is_closed = True
                return True
            run = self.run = self.run or self._made_run()
        try:
            run.launch(self._answer)
        except AioInferError:  # it has answered them
            self.parts = []  # which know this
            return False
        return True

    def carry(self, route: InlineRoute, turn: InlineTurn) -> bool:
        """Run its calls on this thread, that of their loop; False: it is to be launched."""
        network = self._network
        for part in [part for part in self.parts if part.future.cancelled()]:
            self.give_up(part)  # its task has not come to it yet
        with network.collecting:
            parts = self.parts
            self.is_closed = True
            if not parts:
                return True
            self._number()
            run = self.run = self._made_run()
        own_inputs, bindings = parts[0].inputs, run.bindings
        length = 0
        if len(parts) > 1:
            padding = network.padding
            join = join_rows if padding is None else padding.join_rows
            given = [part.inputs for part in parts]
            bindings.inputs = join(given, network.batched_inputs, network.empty)
            if padding is not None:
                length = padding.length_of(bindings.inputs)
        joined = bindings.inputs
        if not route.carry(run, turn):
            bindings.inputs, self.is_closed = own_inputs, False
            return False
        network.note_carried(bindings.ticket[1], [part.run_id for part in parts])
        if len(parts) > 1:
            self._note_joined(joined)
            network.give_back(joined.values())
        error = run.error or self._misfit(length)
        if error is not None and len(parts) > 1 and run.stop.error is None:
            self._retry_each(failed_together(len(parts) - 1, error))
        else:
            self._answer_here(error)
        return True

    def _misfit(self, length: int) -> GraphError | None:
        """Return why outputs cannot be shared out, if they cannot."""
        results = self.run.bindings.results if self.run is not None else {}
        if len(self.parts) < 2:
            return None
        try:
            if self.padding is not None:
                self.padding.check(results, length)
            check_lines(results, self.batched_outputs, self.row_count)
        except GraphError as error:
            return error
        return None

    def _note_joined(self, joined: Mapping[str, np.ndarray[Any, Any]]) -> None:
        assert self.run is not None
        size_bytes = sum(array.nbytes for array in joined.values())
        recorder = self._network.admission.recorder
        self.run.bindings.note_copied(recorder, "join", "host", size_bytes)

    def _answer_here(self, error: BaseException | None) -> None:
        """Answer all calls, on the thread of their loop."""
        admission, run, parts = self._network.admission, self.run, self.parts
        assert run is not None
        ended_ns, began_ns = run.ended_ns, run.bindings.arrived_ns
        self._have_come = True
        admission.arrivals.arrive_together([part.inputs for part in parts])
        waits_ns = [began_ns - part.arrived_ns for part in parts]
        admission.note_waits(waits_ns)
        if error is not None:
            for part in parts:
                part.is_counted = True
                if run.error is None:
                    part.error = own_error(error)
        self.is_over = True
        took_ns = ended_ns - began_ns
        admission.count_together([wait_ns + took_ns for wait_ns in waits_ns], error)
        if error is None:
            self.lines = self._lines_of(run.bindings.results)
        wake_all(parts)  # if this finds no memory, `fail` does it again
        self.parts = []  # which know this

    def _lines_of(self, results: Mapping[str, Any]) -> Sequence[tuple[str, Any]] | None:
        """Return outputs that are row by row those of the inputs; None if one is not."""
        batched, row_count = self.batched_outputs, self.row_count
        if self.padding is not None:
            return None
        for name, value in results.items():
            if name not in batched or len(value) != row_count:
                return None
        return list(results.items())

    def _retry_each(self, note: str) -> None:
        """Find out whose fault it was: each call has a run of its own."""
        for part in self.parts:
            bindings = Bindings(part.inputs, ticket_of(0), part.run_id, NO_TENSORS)
            bindings.arrived_ns = part.arrived_ns
            run = part.run = Run(self._network.admission, bindings)
            try:
                run.launch(partial(self._answer_alone, part, run, note))
            except AioInferError:  # which its own end has reported
                continue
        self.parts = []

    def _answer_alone(self, part: Part, run: Run, note: str) -> None:
        if run.error is not None and run.error is not run.stop.error:
            run.error.add_note(note)
        waker = self._find_waker()
        if waker is not None:
            waker.post(partial(wake_all, [part]))

    def fail(self, error: BaseException) -> None:
        """Answer calls that an error has kept from being run, on the thread of their loop.

        One that has a run of its own is answered by that. Nothing is left to do for a run that they
        share and that waits by now.
        """
        admission, now_ns = self._network.admission, perf_counter_ns()
        with self._network.collecting:
            known = list(self.parts)
            parts = [part for part in known if part.run is None]
            uncounted = [part for part in parts if not (self.is_over or part.is_counted)]
            for part in uncounted:
                part.is_counted, part.error = True, own_error(error)
            if not self._have_come:
                self._have_come = self.is_closed = True
                admission.arrivals.arrive_together([part.inputs for part in parts])
            run = self.run
        if uncounted:
            admission.count_together([now_ns - part.arrived_ns for part in uncounted], error)
        if run is not None:
            run.cancel()
        wake_all([part for part in known if part.run is None or part.run.is_answered])

    def take(self) -> None:
        """Close it, as its run begins. Locked."""
        self._number()
        self.close()
        if self.run is not None:
            self.run.bindings.inputs = self.parts[0].inputs

    def _number(self) -> None:
        """Give each call its place among the rows. Locked."""
        begin, run_ids = 0, self._network.run_ids
        for part in self.parts:
            if not part.run_id:
                part.run_id = next(run_ids)
            part.begin = begin
            begin += part.row_count
        self.row_count = begin

    def _made_run(self) -> Run:
        """Make the run of the calls that there are, at least one."""
        admission, first = self._network.admission, self.parts[0]
        if not first.run_id:
            first.run_id = next(self._network.run_ids)
        bindings = Bindings(
            first.inputs,
            ticket_of(0),
            first.run_id,
            NO_TENSORS,
            arrived_ns=perf_counter_ns(),
            shared=self,
        )
        run = Run(admission, bindings)
        run.mark_retrieved()
        run.has_arrived = run.is_counted = True  # its calls are counted
        if not admission.first_run_ns:
            admission.first_run_ns = first.arrived_ns
        return run

    def close(self) -> None:
        """Take no more calls, and count those that have come; twice is fine. Locked."""
        self.is_closed = True
        if self._have_come:
            return
        self._have_come = True
        if self._when_closed is not None:
            self._when_closed(self)
        self._network.admission.arrivals.arrive_together([part.inputs for part in self.parts])

    def give_up(self, part: Part) -> None:
        """Forget a call whose task was cancelled; if it was the last one, stop the run."""
        network = self._network
        if part.run is not None:
            part.run.mark_retrieved()
            part.run.cancel()
            return
        with network.collecting:
            if part.is_counted or self.is_over:
                return
            part.is_counted = True
            self._gone_count += 1
            run, member = self.run, self.member
            is_last = self._gone_count == len(self.parts)
            if not self.is_closed and (run is None or (member is not None and not is_last)):
                if member is not None:
                    network.collector.grow(member, -part.row_count)
                self.parts.remove(part)
                self._gone_count -= 1
                self.row_count -= part.row_count
                network.admission.arrivals.arrive(part.inputs)
        now_ns = perf_counter_ns()
        network.admission.count_together([now_ns - part.arrived_ns], RequestCancelledError())
        if is_last and run is not None:
            run.cancel()

    def copy_shared(self, outputs: Mapping[str, Any]) -> None:
        """Copy what has no rows for each call but the first, on a thread that may take long."""
        shared = {name: outputs[name] for name in outputs if name not in self.batched_outputs}
        if shared:
            for part in self.parts[1:]:
                part.copies = {name: np.array(value) for name, value in shared.items()}

    def end(self) -> None:
        """Leave its place; called by the member that it was, whose run ends now."""
        with self._network.collecting:
            self.member, self._has_ended = None, True
            if self._is_answered:
                self.parts = []  # which know this

    def _answer(self) -> None:
        """Tell the loop, once, that there is an outcome; on any thread. Again if it has raised."""
        run, now_ns = self.run, perf_counter_ns()
        assert run is not None
        with self._network.collecting:
            self.close()  # a run that is stopped may still wait for its place
            self._is_answered = True
            uncounted = [part for part in self.parts if not part.is_counted]
            self._unwoken += uncounted
            if self._has_ended:  # one that is stopped may still come to its place
                self.parts = []
            for part in uncounted:
                part.is_counted = True
        finished = []
        for part in uncounted:
            error = run.error or part.error
            if error is None:
                finished.append(now_ns - part.arrived_ns)
            else:
                self._network.admission.count_together([now_ns - part.arrived_ns], error)
        if finished:
            self._network.admission.count_together(finished, None)
        waker = self._find_waker()
        if waker is not None:  # it goes with its loop
            waker.post(partial(wake_all, self._unwoken))
        self._unwoken = []


def failed_together(other_count: int, error: BaseException) -> str:
    """Say of a request that is run alone why it is."""
    return (
        f"it had been run together with {other_count} other requests, and that run failed with "
        f"{error!r}"
    )


Place = tuple[int, Hashable]
"""The loop whose calls a bundle takes, and what these are like."""
