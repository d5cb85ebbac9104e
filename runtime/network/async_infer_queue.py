"""AsyncInferQueue: some requests of one network, handed out as they become idle.

Theory of operation. A request is idle, or has an item: from its start until the queue's callback
for it is over. The callback runs on the network's callback thread, where waiting would hold up what
is waited for; so an item that it starts gets the request that the callback is of, which nobody else
can have until then.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import index as as_index
from typing import Any

from ...errors import PropertyError, RequestStateError
from ...executors.base import must_not_block, refuse_own_thread
from ..loops.completion import on_trio, until, until_told
from .executable_network import ExecutableNetwork
from .infer_request import InferRequest

__all__ = ["AsyncInferQueue", "QueueCallback"]

QueueCallback = Callable[[InferRequest, Any], None]
"""Called with the request and the userdata of an item that has a result."""


class _Inside(threading.local):
    """The request whose callback this thread is in, until an item is started on it."""

    queue: AsyncInferQueue | None = None
    number: int | None = None


_inside = _Inside()


class _Place:
    """A place in line: gets the number of an idle request, or hands it on if it was left."""

    number = -1

    def __init__(self, give: Callable[[int], None], wake: Callable[[], None]) -> None:
        self._give, self._wake = give, wake
        self._lock = threading.Lock()
        self._is_left = False

    def take(self, number: int) -> None:
        with self._lock:
            is_left = self._is_left
            self.number = number
        if is_left:
            self._give(number)
        else:
            self._wake()

    def leave(self) -> None:
        with self._lock:
            self._is_left = True
            number = self.number
        if number >= 0:
            self._give(number)


class _Item:
    """What one run of a request is for; the run's userdata."""

    def __init__(self, userdata: Any) -> None:
        self.userdata = userdata


class AsyncInferQueue:
    """A fixed number of requests over a network; items wait for an idle one. Thread-safe.

    ``jobs``: how many; 0 takes what keeps the device busy. Methods that block are for plain
    threads; on an event loop await ``start`` and ``wait_all_async``. Errors of items are kept until
    the next ``wait_all``, which raises them together.

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
        for number, request in enumerate(self._requests):
            request.set_callback(partial(self._on_end, number))
        self._lock = threading.Lock()
        self._idle = deque(range(len(self._requests)))
        self._waiting: deque[_Place] = deque()
        self._drained: list[Callable[[], None]] = []
        self._items: list[_Item | None] = [None] * len(self._requests)
        self._userdata: list[Any] = [None] * len(self._requests)
        self._errors: list[BaseException] = []
        self._callback: QueueCallback | None = None

    def set_callback(self, callback: QueueCallback | None) -> None:
        """Have this called with request and userdata of each item that ends well from now on.

        On the network's callback thread, one at a time. It may start an item, which gets the
        request that it was called with. What it raises is raised by ``wait_all``.
        """
        if callback is not None and not callable(callback):
            raise PropertyError(
                f"the callback is {type(callback).__name__}; give a function of a request and its "
                f"userdata, or None",
                "callback",
                self._network.device,
                value=callback,
                network=self._network.name,
            )
        self._callback = callback

    def start_async(
        self,
        inputs: Any = None,
        userdata: Any = None,
        *,
        deadline_s: float | None = None,
        priority: int = 0,
    ) -> None:
        """Start an item on an idle request, which is waited for. Blocks where none is idle.

        Raises what ``InferRequest.start_async`` does, and RequestStateError on an event loop, and
        in a callback that has started an item already where no other request is idle.
        """
        self._refuse_on_loop("start_async", "await queue.start(...)")
        own = self._own_number()
        if own is not None:
            ended = self._items[own]
            try:
                self._begin(own, inputs, userdata, deadline_s, priority)
            except BaseException:  # the request is still the callback's
                self._items[own], _inside.number = ended, own
                raise
            return
        number = self._wait_for_idle(takes=True)
        self._begin_or_give(number, inputs, userdata, deadline_s, priority)

    async def start(
        self,
        inputs: Any = None,
        userdata: Any = None,
        *,
        deadline_s: float | None = None,
        priority: int = 0,
    ) -> None:
        """Start an item on an idle request, as ``start_async``; suspends where none is idle."""
        places: list[_Place] = []

        def register(wake: Callable[[], None]) -> None:
            places.append(_Place(self._give, wake))
            self._when_idle(places[0])

        self._network.refuse_after_fork()
        await until(register, lambda: self._leave(places))
        self._begin_or_give(places[0].number, inputs, userdata, deadline_s, priority)

    def is_ready(self) -> bool:
        """Say whether an item could start at once."""
        return bool(self._idle)

    def get_idle_request_id(self) -> int:
        """Return the number of the request that the next item gets; blocks where none is idle."""
        self._refuse_on_loop("get_idle_request_id", "await queue.start(...)")
        if _inside.queue is self and _inside.number is not None:
            return _inside.number
        return self._wait_for_idle(takes=False)

    def wait_all(self) -> None:
        """Block until all items have ended, callbacks included.

        Raises an ExceptionGroup of what items and callbacks have raised since the last time; the
        queue goes on. RequestStateError on an event loop and on one of aioinfer's own threads.
        """
        self._refuse_on_loop("wait_all", "await queue.wait_all_async()")
        refuse_own_thread("wait_all")
        drained = threading.Lock()
        drained.acquire()
        tell = drained.release
        self._when_drained(tell)
        try:
            drained.acquire()
        finally:
            self._forget_drained(tell)
        self._raise_errors()

    async def wait_all_async(self) -> None:
        """Suspend until all items have ended, callbacks included; as ``wait_all``."""
        self._network.refuse_after_fork()
        await until_told(self._when_drained, self._forget_drained)
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

    def _begin(
        self, number: int, inputs: Any, userdata: Any, deadline_s: float | None, priority: int
    ) -> None:
        item = self._items[number] = _Item(userdata)
        self._userdata[number] = userdata
        request = self._requests[number]
        request.start_async(inputs, item, deadline_s=deadline_s, priority=priority)

    def _begin_or_give(
        self, number: int, inputs: Any, userdata: Any, deadline_s: float | None, priority: int
    ) -> None:
        try:
            self._begin(number, inputs, userdata, deadline_s, priority)
        except BaseException:
            self._items[number] = None
            self._give(number)
            raise

    def _on_end(self, number: int, request: InferRequest, error: BaseException | None) -> None:
        item = self._items[number]
        if item is None or request.userdata is not item:  # its holder has started it
            return
        callback = self._callback
        if error is not None:
            self._errors.append(error)
        elif callback is not None:
            _inside.queue, _inside.number = self, number
            try:
                callback(request, item.userdata)
            except BaseException as raised:
                self._errors.append(raised)
            finally:
                is_taken = _inside.number is None
                _inside.queue = _inside.number = None
            if is_taken:
                return
        self._items[number] = None
        self._give(number)

    def _own_number(self) -> int | None:
        """Take the request of the callback that this thread is in; None if it has none left."""
        if _inside.queue is not self:
            return None
        number, _inside.number = _inside.number, None
        return number

    def _wait_for_idle(self, *, takes: bool) -> int:
        if must_not_block() and not self._idle:
            raise RequestStateError(
                f"the queue over network {self._network.name!r} is full, and one of aioinfer's own "
                f"threads cannot wait for a request; start one item in each callback, or make the "
                f"queue with more jobs",
                network=self._network.name,
                device=self._network.device,
            )
        is_given = threading.Lock()
        is_given.acquire()
        place = _Place(self._give, is_given.release)
        self._when_idle(place)
        try:
            is_given.acquire()
        except BaseException:  # an interrupt of the waiting thread
            self._leave([place])
            raise
        if not takes:
            self._give(place.number, is_first=True)
        return place.number

    def _when_idle(self, place: _Place) -> None:
        with self._lock:
            if not self._idle:
                self._waiting.append(place)
                return
            number = self._idle.popleft()
        place.take(number)

    def _leave(self, places: list[_Place]) -> None:
        for place in places:
            with self._lock:
                if place in self._waiting:
                    self._waiting.remove(place)
            place.leave()

    def _give(self, number: int, *, is_first: bool = False) -> None:
        """Hand an idle request to the next waiter, or keep it."""
        drained: list[Callable[[], None]] = []
        with self._lock:
            place = self._waiting.popleft() if self._waiting else None
            if place is None:
                (self._idle.appendleft if is_first else self._idle.append)(number)
                if len(self._idle) == len(self._requests):
                    drained, self._drained = self._drained, []
        if place is not None:
            place.take(number)
        for tell in drained:
            tell()

    def _when_drained(self, tell: Callable[[], None]) -> None:
        with self._lock:
            if len(self._idle) < len(self._requests):
                self._drained.append(tell)
                return
        tell()

    def _forget_drained(self, tell: Callable[[], None]) -> None:
        with self._lock:
            if tell in self._drained:
                self._drained.remove(tell)

    def _raise_errors(self) -> None:
        with self._lock:
            errors, self._errors = self._errors, []
        if errors:
            text = f"{len(errors)} of a queue over network {self._network.name!r} failed"
            raise BaseExceptionGroup(text, errors)

    def _refuse_on_loop(self, what: str, way_out: str) -> None:
        self._network.refuse_after_fork()
        is_on_loop = on_trio()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            is_on_loop = True
        if is_on_loop:
            raise RequestStateError(
                f"{what} may wait, and would stop this event loop; {way_out}",
                network=self._network.name,
                device=self._network.device,
            )
