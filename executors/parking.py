"""Where an executor keeps accepted work whose token has not fired.

Theory of operation. A parked piece of work has three ways out, and takes exactly one: its token
fires and it is started, its token fails and it is refused with that error, or its executor is
closed without draining and it is refused with ClosedError. The thread that claims it under the lock
answers it, outside the lock; it counts as parked until the answer has been given, so a close that
has seen the lot empty knows that all of it was started or answered.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from ..errors import ClosedError
from .base import NOW, Ready, Then, tell_owner
from .fork import ProcessMark

_log = logging.getLogger("aioinfer")


def tell(then: Then, ready: Ready, error: BaseException | None) -> None:
    """Call ``then``; one that breaks the rule and raises is logged, and the thread goes on."""
    try:
        then(ready, error)
    except BaseException as raised:
        tell_owner(then, (ready,), raised)


class _Parked:
    """One piece of work; ``start`` is dropped once a thread has claimed it."""

    __slots__ = ("after", "refuse", "start")

    def __init__(self, after: Ready, start: Callable[[], None], refuse: Then) -> None:
        self.after = after
        self.start: Callable[[], None] | None = start
        self.refuse: Then | None = refuse

    def claim(self) -> tuple[Callable[[], None], Then] | None:
        """Hand out what it held, once; the token that still knows this object keeps nothing."""
        start, refuse = self.start, self.refuse
        self.start = self.refuse = None
        return None if start is None or refuse is None else (start, refuse)


class Parking:
    """The parked work of one executor, and whether that executor still accepts. Thread-safe."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._changed = threading.Condition(threading.Lock())
        self._parked: dict[_Parked, None] = {}
        self.is_closed = False
        """True as soon as close has begun."""
        self.process = ProcessMark()
        """Of the process where its owner has threads."""

    @property
    def count(self) -> int:
        """How many pieces of work wait for their token."""
        return len(self._parked)

    @property
    def is_in_its_process(self) -> bool:
        """False in a forked child, where neither the lock nor any thread can be relied on."""
        return self.process.is_current

    @property
    def is_open(self) -> bool:
        """True while work is accepted. Takes no lock, so it may be out of date when it returns."""
        return not self.is_closed and self.process.is_current

    def refusal(self) -> ClosedError:
        """Make the error for work that comes after close, or after a fork."""
        if not self.process.is_current:
            return self.process.error(self._owner)
        return ClosedError(f"{self._owner} is closed and takes no more work; load the network anew")

    def park(self, after: Ready, start: Callable[[], None], refuse: Then) -> None:
        """Call ``start`` once the token has fired, or ``refuse`` with a token and an error.

        Either of them once, at once on this thread or later on the one that fires the token.
        Raises ClosedError, and keeps nothing, after close.
        """
        parked = _Parked(after, start, refuse)
        with self._changed:
            if self.is_closed:
                raise self.refusal()
            self._parked[parked] = None
        try:
            after.when_ready(partial(self._fired, parked))
        except BaseException:
            with self._changed:
                held = parked.claim()
            self._leave(parked)
            if held is not None:
                raise
            _log.exception("the token %r raised after it had fired", after)

    def close(self, *, drain: bool) -> None:
        """Accept no more, and wait until nothing is parked.

        With drain that is when every token has fired; without, what is parked is refused now, and
        gets its own token handed on because that has not fired. Twice is fine, also at once.
        """
        with self._changed:
            self.is_closed = True
            claimed = [] if drain else [(item, item.claim()) for item in self._parked]
        for item, held in claimed:
            if held is not None:
                tell(held[1], item.after, self.refusal())
                self._leave(item)
        with self._changed:
            self._changed.wait_for(lambda: not self._parked)

    def _fired(self, parked: _Parked, error: BaseException | None) -> None:
        if not self.process.is_current:
            held = parked.claim()
            if held is not None:
                tell(held[1], NOW, self.refusal())
            return
        with self._changed:
            held = parked.claim()
        if held is None:
            return
        start, refuse = held
        if error is not None:
            tell(refuse, NOW, error)
        else:
            try:
                start()
            except BaseException:
                _log.exception("starting work on %s raised; its run may never settle", self._owner)
        del held, start, refuse  # an error's traceback may keep this frame; it must not keep them
        self._leave(parked)

    def _leave(self, parked: _Parked) -> None:
        with self._changed:
            self._parked.pop(parked, None)
            if not self._parked:
                self._changed.notify_all()
