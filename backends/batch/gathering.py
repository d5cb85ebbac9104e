"""Awaited calls of one turn of an event loop, which share runs on the thread of that loop.

Theory of operation. Where a run takes a few microseconds, handing it to a worker and waking the
loop costs more than its rows. So calls whose plan is short are collected until the loop has called
all that was ready, and then run where they are, as ``runs/inline_route.py`` says. As long as few
tasks ask, each call goes at once and alone, which costs what it would without BATCH. What cannot be
carried (others wait, the lane is taken, the plan of these rows is long or not known yet) is
launched, and then the loop's thread helps with what waits in the collector, in the collector's
order, so that a queue that has formed is worked off where that is cheap.

After half a millisecond the loop has its turn; what is left goes on in the next one. A close, which
may come on the thread of the loop itself, does not wait for the loop: it launches what is gathered.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from sys import modules
from time import perf_counter_ns
from typing import Any, Protocol
from weakref import WeakSet, ref

from numpy import dtype, ndarray

from ...executors.fork import ProcessMark
from ...executors.interrupt import can_interrupt, default_int_handler, get_sigint_handler
from ...runtime.loops.completion import FindWaker, on_trio
from ...runtime.loops.inline_turn import ROUND_NS, InlineTurn, threads
from ...runtime.runs.inline_route import InlineRoute
from .bundle import Bundle, BundleNetwork
from .part import Part

__all__ = ["CROWD", "Gathering", "Gatherings", "HelpedNetwork"]

CROWD = 8
"""From more calls than this in a turn on, one run costs less than a run for each."""


class HelpedNetwork(BundleNetwork, Protocol):
    """What gatherings ask of their network."""

    process: ProcessMark
    """Of the process that it works in."""

    def help_along(self, add: Callable[[], object], turn: InlineTurn, until_ns: int) -> None:
        """Add to what waits, and run of that on this thread, as long as that is short."""


class Gathering:
    """The calls of one loop that have no run yet. Used on its thread, but for ``launch_all``.

    It lives as long as the loop has to call it.
    """

    def __init__(
        self,
        network: HelpedNetwork,
        route: InlineRoute,
        find_waker: FindWaker,
        crowded: set[int],
    ) -> None:
        import asyncio

        self.find_waker = find_waker
        self._network, self._route, self._crowded = network, route, crowded
        self.open: dict[Hashable, Bundle] = {}
        """What takes more calls, by what these are like."""
        self._bundles: deque[Bundle] = deque()
        self.call_count = 0
        """How many have come together."""
        self.newest: Bundle | None = None
        """The last of those that take more; None for texts, of which each item is looked at."""
        self.like: tuple[tuple[str, dtype[Any], tuple[int, ...]], ...] = ()
        """What the arrays of its first call are like."""
        self.row_count = 0
        self.loop: Any = None
        """That of all calls, while some are here."""
        self.running_loop = asyncio._get_running_loop
        """Unlike the public function it raises nothing outside of a loop."""

    def begin(self, part: Part, key: Hashable) -> None:
        """Have a call be the first of a bundle."""
        bundle, loop = Bundle(self._network, self.find_waker), part.future.get_loop()
        self.newest = None  # as long as what it takes is not that of what it has
        self.like = tuple([(name, array.dtype, array.shape) for name, array in part.inputs.items()])
        self.loop, self.row_count = loop, part.row_count
        bundle.add(part)
        if not self._bundles:
            loop.call_soon(_flushing(self).__next__)
        self._bundles.append(bundle)
        self.open[key] = bundle
        if not any(kind.hasobject for _, kind, _ in self.like):
            self.newest = bundle
        self.call_count += 1

    def flush(self) -> None:
        """Run what has come together, and have the loop come back for what takes too long."""
        turn, began_ns = threads.turn, perf_counter_ns()
        used_ns = turn.used_ns
        if self.call_count < CROWD:
            self._crowded.discard(threading.get_ident())
        self.call_count = 0
        bundle: Bundle | None = None
        try:
            while self._bundles:
                try:
                    bundle = self._bundles.popleft()
                except IndexError:  # a close has taken it
                    break
                try:
                    self._run(bundle, turn, began_ns + ROUND_NS)
                except MemoryError as error:
                    bundle.fail(error)
                if perf_counter_ns() - began_ns > ROUND_NS:
                    break
        finally:
            turn.used_ns = used_ns + perf_counter_ns() - began_ns
            if not self._bundles:
                self.open.clear()
                self.newest = self.loop = None
            else:
                self._go_on()

    def _run(self, bundle: Bundle, turn: InlineTurn, until_ns: int) -> None:
        network = self._network
        try:
            if not network.collector.waiting and bundle.carry(self._route, turn):
                return
            with network.collecting:
                first = bundle.parts[0].inputs if bundle.parts else None
            if not network.collector.waiting or first is None:
                bundle.launch()
            elif self._route.gate.time_of_rows(first, network.most_rows).is_short:
                network.help_along(bundle.launch, turn, until_ns)
            else:
                bundle.launch()
        except BaseException as error:
            bundle.fail(error)
            if not isinstance(error, Exception):
                raise

    def _go_on(self) -> None:
        waker = self.find_waker()
        loop = None if waker is None else waker.loop()
        if loop is not None:
            loop.call_soon(_flushing(self).__next__)

    def launch_all(self) -> None:
        """Send what has been gathered to the network, without the loop. On any thread."""
        while self._bundles:
            try:
                bundle = self._bundles.popleft()
            except IndexError:  # the loop has taken it
                return
            bundle.launch(takes_more=False)


def _flushing(gathering: Gathering) -> Iterator[None]:
    """Flush once, when the loop asks: a generator, for its frame is there before that.

    Where a call of the loop's finds no memory, nothing would make it again.
    """
    try:
        gathering.flush()
    except MemoryError:
        gathering.flush()
    yield


class _Here(threading.local):
    """What a thread knows of its loop's calls."""

    gathering: ref[Gathering] | None = None


class Gatherings:
    """Those of one network, each of its loop. Thread-safe."""

    def __init__(self, network: HelpedNetwork, route: InlineRoute) -> None:
        self._network, self._route = network, route
        self._here = _Here()
        self.crowded: set[int] = set()
        """The threads in the last turn of whose loop enough calls came together, or do in this."""
        self._all: WeakSet[Gathering] = WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False

    def take(self, inputs: Any) -> Part | None:
        """Have a call wait whose arrays are as those of one that does; None: it is to be looked at.

        Whatever may have changed since that one was is looked at again. One body: it is the way of
        nearly every row.
        """
        known = self._here.gathering
        gathering = None if known is None else known()
        if gathering is None:
            return None
        bundle, like, network = gathering.newest, gathering.like, self._network
        if bundle is None:
            return None
        if type(inputs) is ndarray:
            inputs = {like[0][0]: inputs}
        if type(inputs) is not dict or len(inputs) != len(like):
            return None
        for name, kind, shape in like:
            array = inputs.get(name)
            if type(array) is not ndarray or array.dtype is not kind or array.shape != shape:
                return None
        if (
            ("trio" in modules and on_trio())
            or (get_sigint_handler() is default_int_handler and can_interrupt())
            or network.admission.is_closed
            or not network.process.is_current
        ):
            return None
        loop, row_count = gathering.running_loop(), gathering.row_count
        if loop is None or loop is not gathering.loop:
            return None
        part = Part(inputs.copy(), row_count, loop.create_future())
        with network.collecting:
            if bundle.is_closed or bundle.run is not None:
                return None
            end = bundle.row_count + row_count
            if end > network.most_rows:
                return None
            part.bundle = bundle
            bundle.parts.append(part)
            bundle.row_count = end
        gathering.call_count += 1
        return part

    def add(self, part: Part, key: Hashable, find_waker: FindWaker) -> bool:
        """Have a call wait for the end of its loop's turn; False: its run may be long.

        On the thread of the loop, which ``find_waker`` tells from others.
        """
        known = self._here.gathering
        gathering = None if known is None else known()
        if gathering is not None and gathering.find_waker is not find_waker:
            gathering = None
        if gathering is not None:
            bundle = gathering.open.get(key)
            if bundle is not None and bundle.add(part):
                gathering.call_count += 1
                return True
        gate, most_rows = self._route.gate, self._network.most_rows
        if not (
            gate.time_of(part.inputs).is_short
            or gate.time_of_rows(part.inputs, most_rows).is_short  # all that has run under load
        ):
            return False
        if gathering is None:
            gathering = Gathering(self._network, self._route, find_waker, self.crowded)
            with self._lock:
                if self._is_closed:
                    return False
                self._all.add(gathering)
            self._here.gathering = ref(gathering)
        self.crowded.add(threading.get_ident())  # all that ask in this turn go with the first
        gathering.begin(part, key)
        return True

    def close(self) -> None:
        """Gather nothing more, and send what was gathered to the network."""
        with self._lock:
            self._is_closed = True
            found = list(self._all)
        for gathering in found:
            gathering.launch_all()
