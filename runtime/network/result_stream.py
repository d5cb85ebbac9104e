"""Many inputs through one network, as a stream of results with a bounded look-ahead.

A stream has up to ``look_ahead`` items on their way: pulled from the source and not yet in the
consumer's hands. So the consumer's pace bounds how far the source is read. A sync source is pulled
by the consumer's own task, when it asks for a result. An async source may have nothing to give
while there are results, so one task beside the consumer's pulls it and starts the runs; there is no
task per item. Ending a stream early ends its runs, closes its source, and waits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import suppress
from functools import partial
from operator import index as as_index
from typing import Any, TypedDict

from ...errors import OverloadedError, PropertyError, RequestCancelledError, TensorError
from ..loops.completion import let_loop_turn, must_end, until
from ..loops.inline_turn import threads
from ..loops.owning_generator import OwningGenerator
from ..loops.side_task import AutoResetEvent, SideTask, start_side_task
from ..properties.properties import UNBOUNDED
from ..runs.bindings import Results
from ..runs.deadline import Deadline
from ..runs.run import Run
from .deadlines import deadline_from_now
from .infer_request import InferRequest
from .running_network import RunningNetwork

_log = logging.getLogger("aioinfer")

__all__ = ["ResultStream", "Source", "StreamOptions", "default_look_ahead"]

Source = Iterable[Any] | AsyncIterable[Any]


class StreamOptions(TypedDict, total=False):
    """What else ``network.stream`` takes; see there."""

    look_ahead: int | None
    deadline_s: float | None
    priority: int
    request: InferRequest | None


def default_look_ahead(optimal_request_count: int, most_waiting: int) -> int:
    """Decide how many items of a stream are on their way at once. Pure.

    As many as keep the device busy, and as many again, so that a freed slot finds the next run
    waiting while the consumer is at work; but no more than the network has room for
    (``most_waiting``; UNBOUNDED: any number may wait).
    """
    has_bound = most_waiting != UNBOUNDED
    waiting = min(optimal_request_count, most_waiting) if has_bound else optimal_request_count
    return optimal_request_count + waiting


def check_sequence(
    network: RunningNetwork, request: InferRequest, is_ordered: bool, look_ahead: int | None
) -> None:
    """Raise PropertyError for what runs of one request, one behind the other, cannot be. Pure."""
    where = f"a stream of one request of network {network.name!r}"
    why = "is one run behind the other" if network.states is None else "hands on its state"
    if not isinstance(request, InferRequest) or not request.is_of(network):
        text = (
            f"{where} is given {request!r}; give one of this network, which its "
            f"create_infer_request makes"
        )
        raise PropertyError(text, "request", value=repr(request))
    if not is_ordered:
        raise PropertyError(
            f"{where} {why}, so results come in order; leave out ordered",
            "ordered",
            value=is_ordered,
        )
    if look_ahead not in (None, 1):
        text = f"{where} {why}; leave out look_ahead"
        raise PropertyError(text, "look_ahead", value=look_ahead)


class _Item:
    """An input that was pulled: its run, or the reason why it never started."""

    __slots__ = ("deadline", "error", "index", "inputs", "run", "was_inline")

    def __init__(self, index: int, inputs: Any) -> None:
        self.index, self.inputs = index, inputs
        self.deadline: Deadline | None = None
        self.run: Run | None = None
        self.error: Exception | None = None
        self.was_inline = False

    @property
    def is_answered(self) -> bool:
        return self.run is None or self.run.is_answered

    def results(self) -> Results:
        """Return the results or raise the error."""
        run, error = self.run, self.error
        try:
            if run is not None:
                return run.outcome()
            assert error is not None
            raise error
        finally:
            del self, run, error  # the traceback keeps this frame; it must not keep them


_NOTHING: Any = object()


class ResultStream:
    """One stream over a network; for one consumer on one event loop.

    Raises PropertyError for a bad ``look_ahead``, TensorError for what is no source.
    """

    def __init__(
        self,
        network: RunningNetwork,
        source: Source,
        is_ordered: bool,
        look_ahead: int,
        deadline_s: float | None,
        priority: int,
        request: InferRequest | None = None,
    ) -> None:
        self._network, self._is_ordered = network, is_ordered
        self._look_ahead = _checked_look_ahead(look_ahead)
        self._deadline_s, self._priority, self._request = deadline_s, priority, request
        self._source, self._async_source = _iterators_of(source)
        # A stream is closed itself, and not its iterator, which would not tell it of that.
        self._closable = source if isinstance(source, AsyncGenerator) else self._async_source
        self._pending: _Item | None = None
        """What was pulled and has not started, because the network had no room."""
        self._puller: SideTask | None = None
        self._on_way: dict[int, _Item] = {}
        self._answered: deque[_Item] = deque()
        """Of those on their way, whose turn it is; only if they come as they finish."""
        self._pulled_count = 0
        self._next_index = 0
        self._listens_to = -1
        self._was_refused = self._is_over = self._has_begun = self._has_failed = False
        self._source_error: Exception | None = None
        self._changed, self._room = AutoResetEvent(), AutoResetEvent()

    def results(self) -> AsyncGenerator[Any, None]:
        """Return what yields the results in order, or (index, results) as they finish."""
        return OwningGenerator(self._yield_results(), self._end_unread)

    async def _end_unread(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            if self._async_source is not None:
                await self._close_async_source()
            else:
                self._close_source()

    async def _yield_results(self) -> AsyncGenerator[Any, None]:
        self._has_begun = True
        try:
            if self._async_source is not None:
                self._puller = start_side_task(self._pull, self._close_async_source)
            while await self._has_next():
                yield self._hand_over()
        except BaseException as reason:
            error = await self._close()
            try:
                if self._has_failed or isinstance(reason, Exception | GeneratorExit):
                    await self._wait_for_runs()
                # else the consumer was cancelled, which must not take long
                if error is not None:
                    self._tell(error, reason)
                raise
            finally:
                del error  # the traceback keeps this frame, which must not keep it

    async def _wait_for_runs(self) -> None:
        for item in self._on_way.values():
            if item.run is not None:
                await until(item.run.when_ended, lambda: None)

    def _tell(self, error: Exception, reason: BaseException) -> None:
        """Raise what closing the source raised, unless that hid why the stream ends."""
        if isinstance(reason, GeneratorExit):
            raise error
        if self._has_failed or isinstance(reason, Exception):
            reason.add_note(f"closing the source then raised {error!r}")
        else:
            _log.warning(
                "closing the source of a cancelled stream over network %r raised",
                self._network.name,
                exc_info=error,
            )

    @property
    def _has_room(self) -> bool:
        return not (self._was_refused or self._is_over or len(self._on_way) >= self._look_ahead)

    async def _has_next(self) -> bool:
        """Suspend until an item's turn has come; False at the end. Each item is a loop's turn."""
        has_suspended = False
        while True:
            if self._puller is None:
                await self._fill()
            item = self._item_at_turn()
            if item is not None:
                if not (has_suspended or item.was_inline):
                    await let_loop_turn()
                return True
            if self._is_over and not self._on_way:
                if self._source_error is not None:
                    raise self._source_error
                return False
            await self._changed.wait()
            has_suspended = True

    def _item_at_turn(self) -> _Item | None:
        if not self._is_ordered:
            return self._answered[0] if self._answered else None
        item = self._on_way.get(self._next_index)
        if item is None or item.is_answered:
            return item
        if self._listens_to != item.index:
            self._listens_to = item.index
            assert item.run is not None
            item.run.when_answered(self._changed.set)
        return None

    def _hand_over(self) -> Any:
        index = self._next_index if self._is_ordered else self._answered.popleft().index
        item = self._on_way.pop(index)
        self._next_index += 1
        self._was_refused = False
        self._room.set()
        try:
            results = item.results()
        except BaseException as error:  # what a device raises may be no Exception
            self._has_failed = True
            error.add_note(f"in item {index} of a stream over network {self._network.name!r}")
            raise
        return results if self._is_ordered else (index, results)

    async def _fill(self) -> None:
        """Pull a sync source and start runs, as far as there is room."""
        while self._has_room:
            item = self._pending
            if item is None:
                inputs = _NOTHING
                try:
                    inputs = next(self._source, _NOTHING)
                except Exception as error:
                    self._source_error = error
                if inputs is _NOTHING:
                    self._is_over = True
                    return
                item = self._pulled(inputs)
            self._start(item)
            if item.was_inline:  # nothing is gained by having more of them
                await _give_way()
                return

    async def _pull(self) -> None:
        """Pull an async source and start runs, whenever there is room: the side task."""
        assert self._async_source is not None
        try:
            while True:
                while not self._has_room:
                    if self._is_over:
                        return
                    await self._room.wait()
                item = self._pending
                if item is None:
                    inputs = await anext(self._async_source, _NOTHING)
                    if inputs is _NOTHING:
                        return
                    item = self._pulled(inputs)
                self._start(item)
                if item is not self._pending:
                    if item.index == self._next_index:  # else the consumer waits for another one
                        self._changed.set()
                    if item.was_inline:
                        await _give_way()
        except Exception as error:
            self._source_error = error
        except BaseException as error:
            self._end_cancelled(error)
            raise
        finally:
            self._is_over = True
            self._changed.set()

    def _end_cancelled(self, cause: BaseException | None) -> None:
        """Say that foreign code cancelled the puller: a stream must not end as if done."""
        if not self._is_over:
            self._is_over = True
            self._source_error = RequestCancelledError(
                f"the task that reads the source of a stream over network "
                f"{self._network.name!r} was cancelled",
                network=self._network.name,
                device=self._network.device,
                state="cancelled",
                stage="source",
            )
            self._source_error.__cause__ = cause
            self._changed.set()

    def _pulled(self, inputs: Any) -> _Item:
        """Make an item of what the source gave; its deadline counts from now."""
        item = _Item(self._pulled_count, inputs)
        self._pulled_count += 1
        if self._deadline_s is not None:
            try:
                item.deadline = deadline_from_now(
                    self._network.clock,
                    self._deadline_s,
                    {"network": self._network.name, "device": self._network.device},
                )
            except Exception as error:
                item.error = error
        return item

    def _start(self, item: _Item) -> None:
        """Send an item on its way, or keep it until the network has room.

        That waits for one of ours to be over, so without one the network refuses the item.
        """
        self._pending = item
        try:
            if item.error is not None:
                raise item.error
            if self._on_way and self._network.is_full:  # asked first, as refusals are counted
                self._was_refused = True
                return
            self._run(item)
        except Exception as error:
            if isinstance(error, OverloadedError) and self._on_way:
                self._was_refused = True
                return
            item.error = error
            self._is_over = True  # no reader would see what comes after it
        self._pending = item.inputs = None
        self._on_way[item.index] = item
        if not self._is_ordered:
            on_answer = partial(self._on_answer, item)
            on_answer() if item.run is None else item.run.when_answered(on_answer)

    def _run(self, item: _Item) -> None:
        network = self._network
        route = network.inline_route
        turn = None if route is None or must_end() else threads.turn
        run = network.make_run(item.inputs, item.deadline, self._priority, self._request)
        if turn is None or route is None or not route.carry(run, turn):
            run.launch()
        item.run = run
        item.was_inline = run.is_inline

    def _on_answer(self, item: _Item) -> None:
        self._answered.append(item)
        self._changed.set()

    async def _close(self) -> Exception | None:
        """Cancel what is on its way, and close the source; a run ends when its device is done.

        Returns what closing the source raised.
        """
        self._is_over = True
        for item in self._on_way.values():
            if item.run is not None:
                item.run.mark_retrieved()
                item.run.cancel()
        try:
            if self._puller is not None:
                self._puller.cancel()
                await self._puller.wait_until_ended()
            else:
                self._close_source()
        except Exception as error:
            return error
        return None

    def _close_source(self) -> None:
        if isinstance(self._source, Generator):
            self._source.close()

    async def _close_async_source(self) -> None:
        self._end_cancelled(None)  # if the pulling has not even begun
        if isinstance(self._closable, AsyncGenerator):
            await self._closable.aclose()


async def _give_way() -> None:
    turn = threads.turn
    if turn.used_ns >= turn.most_ns:
        await turn.give_way()


def _checked_look_ahead(given: Any) -> int:
    try:
        look_ahead = as_index(given)
    except TypeError:
        look_ahead = 0
    if look_ahead < 1:
        raise PropertyError(
            f"look_ahead is {given!r}; give a whole number of at least 1, or None for what suits "
            f"the network",
            "look_ahead",
            value=given,
        )
    return look_ahead


def _iterators_of(source: Any) -> tuple[Iterator[Any], AsyncIterator[Any] | None]:
    if isinstance(source, AsyncIterable):
        return iter(()), aiter(source)
    if not isinstance(source, Mapping | str | bytes):
        with suppress(TypeError):
            return iter(source), None
    raise TensorError(
        f"a stream reads an iterable or async iterable of inputs, not {type(source).__name__}; for "
        f"one inference, await infer"
    )
