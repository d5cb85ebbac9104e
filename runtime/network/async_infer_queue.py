"""AsyncInferQueue: some requests of one network, handed out as they become idle.

A request is idle, or has an item, whose hold gives it back once the item's run has ended, callback
included; so what is handed out is idle, whatever the item's callback received and when. The
callback may run where waiting would hold up what is waited for; so an item that it starts gets the
request that the callback is of: the hold is passed on. A request holds nothing of the queue, which
goes when its last item has ended and its user has dropped it.

Ctrl-C is held back wherever it would leave something half made; where a thread waits, it wakes.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from operator import index as as_index
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from ...errors import DeadlineExceededError, Place, PropertyError, RequestStateError
from ...executors.base import must_not_block, refuse_own_thread
from ...executors.interrupt import held_interrupt
from ..loops.completion import on_asyncio, on_trio, until_told
from ..runs.deadline import Deadline
from ..runs.run import Run
from ..tensors.array_like import copied
from .callbacks import check_callback
from .deadlines import deadline_of
from .executable_network import ExecutableNetwork
from .idle_requests import IdleRequests
from .infer_request import InferRequest

__all__ = ["AsyncInferQueue", "QueueCallback"]

QueueCallback = Callable[[InferRequest, Any], Any]
"""Called with the request and the userdata of an item that has a result or an error."""


class _Item(NamedTuple):
    """What is started on a request."""

    inputs: Any
    userdata: Any
    deadline: Deadline | None
    priority: int


NONE = -1
"""The number of no request."""


class _Hold:
    """The hold of one item on a request: given back, or passed on to the next item, once.

    It is made before the request is taken. A ``with`` block gives back what an error leaves it
    with.

    ``before``: the hold that it was passed on by. That gets it back if its own item is not over
    yet, as when this one was stopped while the device was busy with that one.
    """

    error: BaseException | None = None
    """Of the item itself, as its callback gets it."""
    is_let_out = False
    """The callback has raised that error."""
    is_over = False
    """The item has ended, and so has its callback."""

    def __init__(
        self, queue: AsyncInferQueue, number: int = NONE, before: _Hold | None = None
    ) -> None:
        self.queue: AsyncInferQueue | None = queue
        self.number = number
        self._before = before
        self._held = [True]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.number != NONE:
            self.give_back()

    @property
    def is_held(self) -> bool:
        """True until it is given back or passed on."""
        return bool(self._held)

    def pass_on(self) -> bool:
        """Pass the hold of the request on to another item; False: it is gone."""
        try:
            return self._held.pop()
        except IndexError:
            return False

    def take_back(self) -> None:
        """Have again what was passed on."""
        self._held.append(True)
        if self.is_over:
            self.give_back()

    def give_back(self) -> None:
        """Give it back, if it was not passed on; of an item that is over."""
        before = self._before
        while before is not None and before.is_over:
            before = before._before
        self._before = before
        self.is_over = True
        if not self.pass_on():
            return
        queue, self.queue, self._before = self.queue, None, None
        if before is not None:
            before.take_back()
        elif queue is not None:
            try:
                queue._idle.give(self.number)
            except MemoryError:  # for that call
                queue._idle.give(self.number)


_inside: ContextVar[_Hold | None] = ContextVar("aioinfer_inside", default=None)
"""The hold of the item whose callback this code is in."""


class AsyncInferQueue:
    """A fixed number of requests over a network; items wait for an idle one. Thread-safe.

    ``jobs``: how many; 0 takes what keeps the device busy. Methods that block are for plain
    threads; on an event loop await ``start`` and ``wait_all_async``. Errors of items and callbacks
    are kept until the next ``wait_all``, which raises them together, but for those that the
    callback has dealt with: it has asked for ``request.results``, and raised no exception.

    ```python
    with aioinfer.Core() as core, core.load_network("model.onnx", "CPU") as network:
        queue = aioinfer.AsyncInferQueue(network)
        queue.set_callback(lambda request, name: print(name, request.results["logits"].argmax()))
        for name in ("first", "second"):
            queue.start_async(np.zeros((1, 1, 8, 8), np.float32), name)
        queue.wait_all()
    ```
    """

    def __init__(self, network: ExecutableNetwork, jobs: int = 0) -> None:
        try:
            count = as_index(jobs)
        except TypeError:
            count = -1
        if count < 0:
            raise PropertyError(
                f"jobs is {jobs!r}; give a number of requests, or 0 for what keeps the device busy",
                "jobs",
                network.device,
                value=jobs,
                network=network.name,
            )
        self._network = network
        self._requests = [
            network.create_infer_request() for _ in range(count or network.optimal_request_count)
        ]
        self._idle = IdleRequests(len(self._requests))
        self._lock = threading.Lock()
        self._userdata: list[Any] = [None] * len(self._requests)
        self._errors: list[BaseException] = []
        self._callback: tuple[QueueCallback, Any] | None = None

    def set_callback(self, callback: QueueCallback | None, loop: Any = None) -> None:
        """Have this called as ``callback(request, userdata)`` for each item started from now on.

        Whatever becomes of the item: ``request.results`` gives its results or raises its error. On
        the network's callback thread, one at a time, or on ``loop``, an asyncio event loop or a
        trio token, where it may be a coroutine function. It may start an item, which gets the
        request that it was called with. What it raises is raised by ``wait_all``. When it comes,
        and what becomes of it, is as for ``InferRequest.set_callback``.
        """
        self._network.refuse_after_fork()
        check_callback(callback, loop, "a request and its userdata", self._where)
        self._callback = None if callback is None else (callback, loop)

    def start_async(
        self,
        inputs: Any = None,
        userdata: Any = None,
        *,
        share_inputs: bool = True,
        deadline_s: float | None = None,
        priority: int = 0,
    ) -> None:
        """Start an item on an idle request, which is waited for. Blocks where none is idle.

        Arrays must stay as they are until the item's callback, unless ``share_inputs`` is False:
        then those of the host are copied. ``deadline_s`` counts from this call. Raises what
        ``InferRequest.start_async`` does, DeadlineExceededError if no request is idle in time, and
        RequestStateError on an event loop, but in a callback that has started no item yet, and in a
        callback that has started one already where no other request is idle. What it has raised for
        was not started, but for a KeyboardInterrupt that comes too late.
        """
        inputs = inputs if share_inputs else copied(inputs)
        item = _Item(inputs, userdata, deadline_of(self._network, deadline_s), priority)
        if self._begin_own(item):
            return
        self._refuse_on_loop("start_async", "await queue.start(...)")
        self._refuse_waiting_here()
        woken: SimpleQueue[None] = SimpleQueue()
        tell = partial(woken.put, None)
        with held_interrupt(tell=tell) as interrupt, _Hold(self) as hold:
            number = self._idle.take(woken, interrupt, item.deadline)
            if number is not None:
                hold.number = number
                self._begin(hold, item)
        if interrupt.has_come:
            raise KeyboardInterrupt
        if number is None:
            raise self._late(item)

    async def start(
        self,
        inputs: Any = None,
        userdata: Any = None,
        *,
        share_inputs: bool = True,
        deadline_s: float | None = None,
        priority: int = 0,
    ) -> None:
        """Start an item on an idle request, as ``start_async``; suspends where none is idle."""
        self._network.refuse_after_fork()
        inputs = inputs if share_inputs else copied(inputs)
        item = _Item(inputs, userdata, deadline_of(self._network, deadline_s), priority)
        if self._begin_own(item):
            return
        with _Hold(self) as hold:
            number = await self._idle.take_async(item.deadline)
            if number is None:
                raise self._late(item)
            hold.number = number
            with held_interrupt() as interrupt:
                self._begin(hold, item)
        if interrupt.has_come:
            raise KeyboardInterrupt

    def is_ready(self) -> bool:
        """Return whether an item could start at once."""
        self._network.refuse_after_fork()
        return bool(self._idle)

    def get_idle_request_id(self) -> int:
        """Return the number of the request that the next item gets; blocks where none is idle."""
        hold = _inside.get()
        if hold is not None and hold.queue is self and hold.is_held:
            return hold.number
        self._refuse_on_loop("get_idle_request_id", "await queue.start(...)")
        self._refuse_waiting_here()
        woken: SimpleQueue[None] = SimpleQueue()
        with held_interrupt(tell=partial(woken.put, None)) as interrupt:
            number = self._idle.take(woken, interrupt, None)
            if number is not None:
                try:
                    self._idle.give(number, is_first=True)
                except MemoryError:  # for that call
                    self._idle.give(number, is_first=True)
        if number is None or interrupt.has_come:
            raise KeyboardInterrupt
        return number

    def wait_all(self) -> None:
        """Block until all items have ended, callbacks included.

        Raises an ExceptionGroup of what items and callbacks have raised since the last time; the
        queue goes on. RequestStateError on an event loop and on one of aioinfer's own threads.
        """
        self._refuse_on_loop("wait_all", "await queue.wait_all_async()")
        refuse_own_thread("wait_all", **self._where)
        woken: SimpleQueue[None] = SimpleQueue()
        tell = partial(woken.put, None)
        with held_interrupt(tell=tell) as interrupt:
            self._idle.when_all(tell)
            woken.get()
            self._idle.forget(tell)
        if interrupt.has_come:
            raise KeyboardInterrupt
        self._raise_errors()

    async def wait_all_async(self) -> None:
        """Suspend until all items have ended, callbacks included; as ``wait_all``."""
        self._network.refuse_after_fork()
        await until_told(self._idle.when_all, self._idle.forget)
        self._raise_errors()

    @property
    def userdata(self) -> list[Any]:
        """What was given with the latest item of each request."""
        return list(self._userdata)

    def __len__(self) -> int:
        return len(self._requests)

    def __getitem__(self, number: int) -> InferRequest:
        return self._requests[number]

    def __iter__(self) -> Iterator[InferRequest]:
        return iter(self._requests)

    def __repr__(self) -> str:
        return (
            f"<AsyncInferQueue of {self._network.name!r} on {self._network.device}: "
            f"{len(self._idle)} of {len(self)} requests idle>"
        )

    @property
    def _where(self) -> Place:
        return self._network.admission.where

    def _begin_own(self, item: _Item) -> bool:
        """Start an item in a callback, on its request; False: not in one, or that has done so."""
        own = _inside.get()
        if own is None or own.queue is not self:
            return False
        is_begun = False
        with held_interrupt() as interrupt, _Hold(self, own.number, own) as hold:
            if own.pass_on():
                is_begun = True
                self._begin(hold, item)
            else:
                hold.number = NONE
        if interrupt.has_come:
            raise KeyboardInterrupt
        return is_begun

    def _begin(self, hold: _Hold, item: _Item) -> None:
        """Start an item on the request of its hold; it has not begun where that raises."""
        number = hold.number
        request, before = self._requests[number], self._userdata[number]
        try:
            run = request.make_run(item.inputs, item.deadline, item.priority)
            run.userdata = self._userdata[number] = item.userdata
            if self._callback is not None:
                callback, loop = self._callback
                run.call_back(partial(self._tell, hold, callback), loop)
            else:
                run.mark_retrieved()  # it is kept for wait_all
            request.launch(run)
        except BaseException:
            self._userdata[number] = before
            raise
        try:
            run.when_ended(partial(self._on_ended, hold, run))
        except MemoryError:  # for that call: it has been started
            run.when_ended(partial(self._on_ended, hold, run))

    def _tell(
        self,
        hold: _Hold,
        callback: QueueCallback,
        request: InferRequest,
        error: BaseException | None,
    ) -> Any:
        """Call the callback of an item; the error of the item itself is not the callback's."""
        _inside.set(hold)
        hold.error = error
        try:
            result = callback(request, request.userdata)
        except BaseException as raised:
            if raised is not error:
                raise
            hold.is_let_out = True
            return None
        return self._await(hold, result) if isawaitable(result) else None

    async def _await(self, hold: _Hold, result: Awaitable[Any]) -> None:
        try:
            await result
        except BaseException as raised:
            if raised is not hold.error:
                raise
            hold.is_let_out = True

    def _on_ended(self, hold: _Hold, run: Run) -> None:
        """Keep what was not dealt with, and give the request back unless it was passed on."""
        told, raised = hold.error, run.error
        if told is not None and (hold.is_let_out or not run.is_asked_for):
            self._errors.append(told)
        if raised is not None and raised is not told:
            self._errors.append(raised)
        run.mark_retrieved()
        hold.give_back()

    def _refuse_waiting_here(self) -> None:
        """Raise RequestStateError where none is idle and this thread must not wait."""
        if must_not_block() and not self._idle:
            raise RequestStateError(
                f"the queue over network {self._network.name!r} is full, and one of aioinfer's own "
                f"threads cannot wait for a request; start one item in each callback, or make the "
                f"queue with more jobs",
                state="busy",
                **self._where,
            )

    def _late(self, item: _Item) -> DeadlineExceededError:
        assert item.deadline is not None
        return item.deadline.error(
            f"an item of the queue over network {self._network.name!r}",
            "waiting for an idle request",
            stage="",
            request_id=None,
            **self._where,
        )

    def _raise_errors(self) -> None:
        interrupt = held_interrupt()
        try:
            with interrupt, self._lock:
                errors, self._errors = self._errors, []
                if errors:
                    text = f"{len(errors)} of a queue over network {self._network.name!r} failed"
                    raise BaseExceptionGroup(text, errors)
        finally:
            if interrupt.has_come:  # with the errors as its context
                raise KeyboardInterrupt

    def _refuse_on_loop(self, what: str, way_out: str) -> None:
        self._network.refuse_after_fork()
        if on_trio() or on_asyncio():
            raise RequestStateError(
                f"{what} may wait, and would stop this event loop; {way_out}", **self._where
            )
