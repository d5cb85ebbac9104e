"""Awaited calls that share a run from the start.

Theory of operation. Under load every row counts, and a run with slot, queue and answer for each
call costs several times what its rows cost. So a call that would have to wait anyway joins the
bundle that is open on its event loop: a run of the network with room for more rows, which waits in
the collector as any other does. A call only checks its inputs, adds them, and awaits a future. The
bundle closes when its rows are taken or it is full. Its end comes to the loop once, for all calls,
and each takes its own rows of the outputs there, on its own thread. Where runs are short, bundles
are gathered and run by the loop (``gathering.py``).

A call while the device is idle and few call, one with a deadline or a priority, and one that wants
more than its results have runs of their own. A call that is given up leaves a bundle that waits; in
a run its rows are computed with the others'.
"""

from __future__ import annotations

from functools import partial
from sys import modules
from threading import get_ident
from typing import Any, Protocol

from ...errors import AioInferError
from ...executors.interrupt import can_interrupt, default_int_handler, get_sigint_handler
from ...runtime.loops.completion import new_future, on_trio
from ...runtime.loops.inline_turn import InlineTurn
from ...runtime.runs.inline_route import InlineRoute
from .bundle import Bundle, Place
from .gathering import CROWD, Gatherings, HelpedNetwork
from .part import Part

__all__ = ["Crowd", "CrowdNetwork"]


class CrowdNetwork(HelpedNetwork, Protocol):
    """What a crowd asks of its network."""

    inline_route: InlineRoute | None
    inline_postprocess: Any
    free_inputs: frozenset[str]

    def check_inputs(self, given: Any) -> dict[str, Any]:
        """Turn what a caller gave into name -> array, or raise TensorError."""


class Crowd:
    """The open bundles of one network. Thread-safe."""

    def __init__(self, network: CrowdNetwork, outputs: frozenset[str]) -> None:
        self._network = network
        self._open: dict[Place, Bundle] = {}
        """By the loop whose calls they take, and what these are like."""
        pace = network.pace
        self._busy_count = 0 if pace.is_timed else pace.busy_count
        route = network.inline_route
        self._gatherings = None
        if route is not None and outputs == network.batched_outputs:
            self._gatherings = Gatherings(network, route)

    def join(self, inputs: Any, turn: InlineTurn) -> Part | None:
        """Have a call of a task of asyncio wait; None: nothing was kept, it needs its own run.

        ``turn`` is the account of the calling thread.

        Never raises for what is wrong with the call.
        """
        network, gatherings = self._network, self._gatherings
        is_idle = network.run_count < self._busy_count
        if gatherings is not None and gatherings.crowded:
            gathered = gatherings.take(inputs)
            if gathered is not None:
                return gathered
            if is_idle and turn.waiting_count < CROWD and get_ident() not in gatherings.crowded:
                return None
        elif is_idle and (gatherings is None or turn.waiting_count < CROWD):
            return None
        if "trio" in modules and on_trio():
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
        if gatherings is not None and gatherings.add(part, key, find_waker):
            return part
        if is_idle:
            return None
        place = id(find_waker), key
        bundle = self._open.get(place)
        if bundle is None or not bundle.add(part):
            bundle = Bundle(network, find_waker, partial(self._close, place))
            self._open[place] = bundle
            try:
                has_it = bundle.add(part) and bundle.launch()
            except BaseException as error:  # no memory
                self._close(place, bundle)
                bundle.fail(error)
                raise
            if not has_it:
                self._close(place, bundle)
                return None
        return part

    def close(self) -> None:
        """Leave nothing to a loop: the network closes."""
        if self._gatherings is not None:
            self._gatherings.close()

    def _close(self, place: Place, bundle: Bundle) -> None:
        """Take no more calls into the bundle; on any thread."""
        if self._open.get(place) is bundle:
            self._open.pop(place, None)
