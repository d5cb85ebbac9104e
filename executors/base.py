"""The executor contract: a function, the token it starts after, and what is called when it ended.

A stage's work is handed to an executor with ``run(function, after, then)``.

- ``run`` either raises, and has kept nothing, or calls ``then(ready, error)`` exactly once. It
  never blocks, and ``then`` may come before ``run`` returns: hold no lock across it. ``then`` never
  raises.
- ``function(lane)`` ends with a :class:`Ready` token: ``NOW``, or a device event that fires later.
- ``after`` is waited for first. A stream of the same device waits on the device, and the host does
  not notice; any other executor is started by the thread that fires the token. A failed ``after``
  means that the function is not called and ``then`` gets the error.
- ``BaseException`` stops at this border: it becomes the ``error`` of ``then``. A function that
  raises after it has enqueued device work is followed by an event, and that event is handed on, so
  that no thread frees memory under the device. For the same reason a function that is refused
  before ``after`` has fired (its executor was closed) hands ``after`` itself on, beside the error.
- Threads that complete work or turn an event loop only enqueue and hand over.

A join of tokens shows its ``parts``, so that a device stream can wait on the device for those that
are its own and leave only the rest to the host.

Hand-overs are trampolined by :func:`hop` (``threads.py``): a chain of a thousand inline stages
nests no deeper than one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from typing import Any, Self

from ..errors import AioInferError
from .threads import ThreadState as ThreadState
from .threads import hand_over as hand_over
from .threads import hop as hop
from .threads import is_own_thread as is_own_thread
from .threads import mark_own_thread as mark_own_thread
from .threads import must_not_block as must_not_block
from .threads import refuse_own_thread as refuse_own_thread
from .threads import tell_owner as tell_owner
from .threads import this_thread as this_thread

Then = Callable[["Ready", BaseException | None], None]
"""Called once a function has ended, with its token, and its error or None."""

WhenReady = Callable[[BaseException | None], None]
"""Called once a token has fired, with the device's error or None. Never raises or blocks."""


class Ready(ABC):
    """A completion token: work whose end may still lie ahead. Thread-safe."""

    __slots__ = ()

    @property
    def device(self) -> object | None:
        """What an in-order stream compares to wait on the device; None is a token of the host."""
        return None

    @property
    def parts(self) -> tuple[Ready, ...]:
        """The tokens that all have to fire before this one does; itself, if it is not a join."""
        return (self,)

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """True once it has fired, with or without an error."""

    @property
    @abstractmethod
    def error(self) -> BaseException | None:
        """The error it fired with; None while it has not fired."""

    @abstractmethod
    def when_ready(self, call: WhenReady) -> None:
        """Call once it has fired: at once on this thread if it has, else on the firing thread."""

    @staticmethod
    def join(tokens: Iterable[Ready]) -> Ready:
        """Make the token that fires after all of these, with the first error in their order.

        What has fired without an error is left out; joins among them are taken apart, so joins of
        joins do not nest, and a single token that is left over is returned itself.
        """
        waiting: dict[Ready, None] = {}
        for token in tokens:
            if token is NOW:
                continue
            for part in token.parts:
                if not part.is_ready or part.error is not None:
                    waiting[part] = None
        if len(waiting) <= 1:
            return next(iter(waiting), NOW)
        return _Joined(tuple(waiting))


class _Now(Ready):
    """The token of work that has ended."""

    __slots__ = ()

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def error(self) -> BaseException | None:
        return None

    def when_ready(self, call: WhenReady) -> None:
        call(None)

    def __repr__(self) -> str:
        return "NOW"


NOW: Ready = _Now()


class HostReady(Ready):
    """A token that the host fires, once; what waits for it runs on the thread that fires it."""

    __slots__ = ("_calls", "_error", "_fired", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[WhenReady] = []
        self._fired = False
        self._error: BaseException | None = None

    @property
    def is_ready(self) -> bool:
        return self._fired

    @property
    def error(self) -> BaseException | None:
        return self._error

    def fire(self, error: BaseException | None = None) -> None:
        """Fire it; a second time is ignored, so the first error wins.

        All functions that wait are called, even if one breaks the rule and raises; the first such
        exception is raised in the end.
        """
        with self._lock:
            if self._fired:
                return
            self._error = error
            self._fired = True
            calls, self._calls = self._calls, []
        raised: BaseException | None = None
        for call in calls:
            try:
                call(error)
            except BaseException as broken:
                tell_owner(call, (), broken)
                raised = raised or broken
        if raised is not None:
            raise raised

    def when_ready(self, call: WhenReady) -> None:
        with self._lock:
            if not self._fired:
                self._calls.append(call)
                return
        call(self._error)

    def __repr__(self) -> str:
        state = "fired" if self._fired else "waiting"
        if self._error is not None:
            state = f"failed: {self._error!r}"
        return f"<{type(self).__name__} {state}>"


class _Joined(HostReady):
    """Fires after all of several tokens; asks them only when it is asked itself.

    So a device stream that takes the parts costs no host a wait.
    """

    __slots__ = ("_is_listening", "_left", "_tokens")

    def __init__(self, tokens: tuple[Ready, ...]) -> None:
        super().__init__()
        self._tokens = tokens
        self._left = len(tokens)
        self._is_listening = False

    @property
    def parts(self) -> tuple[Ready, ...]:
        return self._tokens or (self,)

    @property
    def is_ready(self) -> bool:
        return self._fired or all(token.is_ready for token in self._tokens)

    @property
    def error(self) -> BaseException | None:
        tokens = self._tokens  # read before _fired, because they are dropped after it is set
        if self._fired:
            return self._error
        return _first_error(tokens) if all(token.is_ready for token in tokens) else None

    def when_ready(self, call: WhenReady) -> None:
        super().when_ready(call)
        with self._lock:
            if self._is_listening:
                return
            self._is_listening = True
        for token in self._tokens:
            token.when_ready(self._one_fired)

    def _one_fired(self, _error: BaseException | None) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self.fire(_first_error(self._tokens))
        self._tokens = ()  # fired: what it was made of need not live on


def _first_error(tokens: Iterable[Ready]) -> BaseException | None:
    errors = (token.error for token in tokens)
    return next((error for error in errors if error is not None), None)


class Lane:
    """The stream a stage function is given to run on.

    ``name`` is unique in its executor and names the row of a timeline; ``thread_count`` is how many
    threads a kernel may use there; ``local`` is for what belongs to the stream (an arena) and is
    touched only by functions that run on it. ``context`` is what its functions see of context
    variables where they run on threads of others; None says that they see the thread's own.
    """

    __slots__ = ("context", "give_back", "index", "local", "name", "thread_count")

    def __init__(
        self, name: str, index: int = 0, thread_count: int = 1, context: Context | None = None
    ) -> None:
        self.name, self.index, self.thread_count = name, index, thread_count
        self.local: dict[Any, Any] = {}
        self.context = context
        self.give_back: Callable[[], None] = _nothing
        """Called by the thread that borrowed the lane, once it is done with it."""

    def __repr__(self) -> str:
        return f"<Lane {self.name!r}>"


def _nothing() -> None:
    """Do what giving a lane back takes that any number of threads may have at once."""


NO_LANE = Lane("none")
"""The lane of a function that only binds and hands over."""


class TaskExecutor(ABC):
    """A place where stages run; see the module's contract."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        """Call the function once ``after`` has fired, and then ``then`` with its token or error.

        Any thread; never blocks. Raises ClosedError, and keeps nothing, after close.
        """

    @property
    def is_idle(self) -> bool:
        """(optional) True if it has nothing to do; out of date as soon as it is read."""
        return False

    def borrow_lane(self) -> Lane | None:
        """(optional) Lend a lane on which the calling thread may run functions itself, now.

        None says that work has to go through ``run``, as it does here. The thread that gets a lane
        calls its ``give_back``, soon. Never blocks.
        """
        return None

    def lending_terms(self) -> tuple[tuple[Callable[[], object], bool], ...] | None:
        """(optional) Return what says whether a lane would be lent: calls, and what each answers.

        Calls of C without arguments. None: it lends none that a run without hops could use.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Refuse new work, finish what was accepted, and end the threads; twice is fine.

        Blocks. Raises RequestStateError on one of aioinfer's own threads, which it would wait for.
        """

    def run_and_wait(
        self,
        functions: Sequence[Callable[[Lane], Ready]],
        when_failed: Callable[[], None] | None = None,
    ) -> None:
        """Run all of them, wait for all, and raise the first error in list order. Blocks.

        ``when_failed`` is called at once for each one that fails or is refused.
        """
        refuse_own_thread("run_and_wait")
        errors: list[BaseException | None] = [None] * len(functions)
        ended = threading.Semaphore(0)

        def wait_for(index: int) -> Then:
            def then(ready: Ready, error: BaseException | None) -> None:
                if error is not None and when_failed is not None:
                    when_failed()

                def fired(late: BaseException | None) -> None:
                    errors[index] = late if error is None else error
                    ended.release()

                ready.when_ready(fired)

            return then

        for index, function in enumerate(functions):
            try:
                self.run(function, NOW, wait_for(index))
            except BaseException as refused:
                errors[index] = refused
                if when_failed is not None:
                    when_failed()
                ended.release()
        for _ in functions:
            ended.acquire()
        first = next((error for error in errors if error is not None), None)
        try:
            if first is not None:
                raise first
        finally:
            del first, functions  # the traceback keeps this frame; it must not keep them
            errors.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def run_here(function: Callable[[Lane], Ready], lane: Lane, then: Then) -> None:
    """Call the function on this thread, then ``then``; the border where BaseException stops.

    Only interrupts of ``then`` come out, after it has been called; and MemoryError where not even
    the function was called.
    """
    ready, error = NOW, None
    try:
        ready = function(lane)
        if ready is not NOW:
            checked(ready)
    except BaseException as raised:
        error = raised
    try:
        then(ready, error)
    except BaseException as raised:
        tell_owner(then, (ready,), raised)
        if not isinstance(raised, Exception):
            raise
    finally:
        del function, then, error  # the error's traceback keeps this frame; it must not keep them


def checked(token: object) -> Ready:
    """Return what a stage function returned, or raise AioInferError if that is not a token."""
    if token is NOW:
        return NOW
    if isinstance(token, Ready):
        return token
    raise AioInferError(
        f"a stage function returned {token!r}, which is not a Ready token; end it with "
        f"'return NOW', or return the event of the work that it enqueued"
    )
