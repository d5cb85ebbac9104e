"""Awaited calls that wait while the device is busy: they are one run from the start.

Theory of operation. Under load every row counts, and a run with slot, queue and answer for each
call costs several times what its rows cost. So a call that would have to wait anyway joins the
bundle that is open on its event loop: a run of the network with room for more rows, which waits in
the collector as any other does. A call only checks its inputs, adds them, and awaits a future. The
bundle closes when its rows are taken or it is full. Its end comes to the loop once, for all calls,
and each takes its own rows of the outputs there, on its own thread.

Who calls while the device is idle, has a deadline or a priority, or wants more than its results,
has a run of its own. A call that is given up leaves a bundle that waits; in a run its rows are
computed with the others'. Calls join and leave on the thread of their loop alone; the network's
lock is between them and the thread that takes the bundle.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from sys import modules
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import AioInferError, RequestCancelledError
from ...executors import hop
from ...executors.fork import ProcessMark
from ...executors.interrupt import can_interrupt, default_int_handler, get_sigint_handler
from ...runtime.loops.completion import FindWaker, new_future, on_trio
from ...runtime.runs.admission import ticket_of
from ...runtime.runs.bindings import NO_TENSORS, Bindings
from ...runtime.runs.error_frames import own_error
from ...runtime.runs.run import Run
from ...runtime.runs.run_admission import RunAdmission
from .collector import Collector, Pace
from .length_padding import LengthPadding
from .rows import RowsOf

if TYPE_CHECKING:
    import asyncio

__all__ = ["Bundle", "Crowd", "CrowdNetwork", "Part"]

_Place = tuple[int, Hashable]


class BundleMember(Protocol):
    """What a bundle asks of the place where it waits."""

    row_count: int


class CrowdNetwork(Protocol):
    """What a crowd asks of its network."""

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
    """Held by who reads or changes what waits."""

    collector: Collector[Any]

    inline_postprocess: Any
    free_inputs: frozenset[str]
    process: ProcessMark
    """Of the process that it works in."""

    def check_inputs(self, given: Any) -> dict[str, Any]:
        """Turn what a caller gave into name -> array, or raise TensorError."""

    run_ids: Iterator[int]
    """Number the calls."""

    def begin_runs(self) -> None:
        """Begin as many runs as may be under way now."""


class Crowd:
    """The open bundles of one network. Thread-safe."""

    def __init__(self, network: CrowdNetwork) -> None:
        self._network = network
        self._open: dict[_Place, Bundle] = {}
        """By the loop whose calls they take, and what these are like."""

    def join(self, inputs: Any) -> Part | None:
        """Have a call of a task of asyncio wait; None: nothing was kept, it needs its own run.

        Never raises for what is wrong with the call.
        """
        network = self._network
        pace = network.pace
        if (network.run_count < pace.busy_count and not pace.is_timed) or (
            "trio" in modules and on_trio()
        ):
            return None
        if network.inline_postprocess is not None or network.free_inputs:
            return None  # functions of the user make what it gets, or what it gives
        if (get_sigint_handler() is default_int_handler and can_interrupt()) or (
            network.admission.is_closed or not network.process.is_current
        ):
            return None
        try:
            given = network.check_inputs(inputs)
        except AioInferError:
            return None
        row_count, key = network.rows_of(given, network.batched_inputs)
        if key is None or row_count >= network.most_rows:
            return None
        future, find_waker = new_future()
        part = Part(given, row_count, future)
        place = id(find_waker), key
        bundle = self._open.get(place)
        if bundle is None or not bundle.add(part):
            bundle = self._open[place] = Bundle(network, find_waker, partial(self._close, place))
            if not bundle.begin(part):
                self._close(place, bundle)
                return None
        return part

    def _close(self, place: _Place, bundle: Bundle) -> None:
        """Let no more calls join; on any thread."""
        if self._open.get(place) is bundle:
            self._open.pop(place, None)


class Part:
    """One awaited call, in a bundle."""

    __slots__ = (
        "arrived_ns",
        "begin",
        "bundle",
        "copies",
        "error",
        "future",
        "inputs",
        "is_counted",
        "outputs",
        "row_count",
        "run_id",
    )

    def __init__(
        self, inputs: dict[str, Any], row_count: int, future: asyncio.Future[None]
    ) -> None:
        self.inputs, self.row_count, self.future = inputs, row_count, future
        self.arrived_ns = perf_counter_ns()
        self.bundle: Bundle | None = None
        self.run_id = 0
        self.begin = 0
        """Its first row among those of the bundle."""
        self.is_counted = False
        """Its outcome is settled."""
        self.copies: dict[str, Any] = {}
        """Its own, of outputs that have no rows; the first call of a run gets those themselves."""
        self.outputs: dict[str, Any] | None = None
        """Those of a run of its own, as is the next."""
        self.error: BaseException | None = None

    def leave(self) -> None:
        """Give it up: nobody will ask for the results."""
        bundle, self.bundle = self.bundle, None
        if bundle is not None:
            bundle.give_up(self)

    def results(self) -> dict[str, Any]:
        """Return the outputs, or raise the error; when ``future`` is done."""
        bundle, self.bundle = self.bundle, None
        assert bundle is not None
        if self.error is not None:
            raise self.error
        if self.outputs is not None:
            return self.outputs
        run, row_count = bundle.run, bundle.row_count
        assert run is not None
        if run.error is not None:
            raise own_error(run.error)
        batched, begin, end = bundle.batched_outputs, self.begin, self.begin + self.row_count
        own = {}
        for name, value in run.bindings.results.items():
            if name not in batched:
                own[name] = self.copies[name] if begin else value
            elif len(value) == row_count:
                own[name] = value[begin:end]
            else:
                lines = len(value) // row_count
                own[name] = value[begin * lines : end * lines]
        padding = bundle.padding
        if padding is not None:
            padding.cut(own, padding.length_of(self.inputs))
        return own


class Bundle:
    """Calls of one event loop that are one run of the network. ``when_closed`` is told once."""

    def __init__(self, network: CrowdNetwork, find_waker: FindWaker, when_closed: Any) -> None:
        self._network, self._find_waker, self._when_closed = network, find_waker, when_closed
        self.parts: list[Part] = []
        """Complete once it is taken; changed under the lock of what waits."""
        self.row_count = 0
        """Of all parts, once it is taken."""
        self.is_closed = False
        self.batched_outputs, self.padding = network.batched_outputs, network.padding
        self.member: BundleMember | None = None
        """Where it waits or runs; written by that."""
        self.run: Run | None = None
        self._left_count = 0
        """How many were not given up."""

    def begin(self, part: Part) -> bool:
        """Send the run of a first call to the network; False: that takes none."""
        admission = self._network.admission
        part.bundle, self._left_count = self, 1
        part.run_id = next(self._network.run_ids)
        self.parts.append(part)
        bindings = Bindings(
            part.inputs,
            ticket_of(0),
            part.run_id,
            NO_TENSORS,
            arrived_ns=part.arrived_ns,
            shared=self,
        )
        run = self.run = Run(admission, bindings)
        run.mark_retrieved()
        run.has_arrived = run.is_counted = True  # its calls are counted
        if not admission.first_run_ns:
            admission.first_run_ns = part.arrived_ns
        try:
            run.launch(self._answer)
        except AioInferError:
            return False
        return True

    def add(self, part: Part) -> bool:
        """Take one more call; False: it is closed, or has no room."""
        network, row_count = self._network, part.row_count
        with network.collecting:
            member = self.member
            if member is None or self.is_closed or member.row_count + row_count > network.most_rows:
                return False
            part.bundle = self
            self.parts.append(part)
            self._left_count += 1
            is_full = network.collector.grow(member, row_count)
            is_due = is_full and network.run_count < network.pace.most_count
        if is_due:
            hop(network.begin_runs)
        return True

    def take(self) -> None:
        """Close it, as its run begins. Locked."""
        self.close()
        begin = 0
        run_ids = self._network.run_ids
        for part in self.parts:
            if not part.run_id:
                part.run_id = next(run_ids)
            part.begin = begin
            begin += part.row_count
        self.row_count = begin
        if self.run is not None:
            self.run.bindings.inputs = self.parts[0].inputs

    def close(self) -> None:
        """Take no more calls, as it does not wait any more. Locked."""
        self.is_closed = True
        self._when_closed(self)
        self._network.admission.recorder.arrive_together([part.inputs for part in self.parts])

    def give_up(self, part: Part) -> None:
        """Forget a call whose task was cancelled; if it was the last one, stop the run."""
        network, run = self._network, self.run
        with network.collecting:
            if part.is_counted:
                return
            part.is_counted = True
            self._left_count -= 1
            is_last = not self._left_count
            member = self.member
            if member is not None and not self.is_closed and not is_last:
                network.collector.grow(member, -part.row_count)
                self.parts.remove(part)
                network.admission.recorder.arrive(part.inputs)
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
        """Let go of its place; by the member that it was, whose run ends now."""
        self.member = None
        if self.run is not None and self.run.is_answered:
            self.parts = []  # which know this

    def _answer(self) -> None:
        """Tell the loop, once, that there is an outcome; on any thread."""
        run, now_ns = self.run, perf_counter_ns()
        assert run is not None
        with self._network.collecting:
            uncounted = [part for part in self.parts if not part.is_counted]
            if self.member is None:
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
            waker.post(partial(_wake_all, uncounted))


def _wake_all(parts: Sequence[Part]) -> None:
    for part in parts:
        if not part.future.done():
            part.future.set_result(None)
