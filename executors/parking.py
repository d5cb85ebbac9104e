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

    __slots__ = ("_lot", "after", "refuse", "start")

    def __init__(self, lot: Parking, after: Ready, start: Callable[[], None], refuse: Then) -> None:
        self._lot, self.after = lot, after
        self.start: Callable[[], None] | None = start
        self.refuse: Then | None = refuse

    def claim(self) -> tuple[Callable[[], None], Then] | None:
        """Hand out what it held, once; the token that still knows this object keeps nothing."""
        start, refuse = self.start, self.refuse
        self.start = self.refuse = None
        return None if start is None or refuse is None else (start, refuse)

    def fired(self, error: BaseException | None) -> None:
        """Start the work, or refuse it; for the token, on whatever thread that fires on."""
        lot = self._lot
        if not lot.process.is_current:
            held = self.claim()
            if held is not None:
                tell(held[1], NOW, lot.refusal())
            return
        # No call that could find no memory comes between claiming it and its start.
        with lot.changed:
            start, refuse = self.start, self.refuse
            self.start = self.refuse = None
        if start is None or refuse is None:
            return
        try:
            if error is None:
                start()
            else:
                refuse(NOW, error)
        except MemoryError as lacking:
            tell(refuse, NOW, error or lacking)
        except BaseException as raised:
            tell_owner(start if error is None else refuse, (), raised)
        del start, refuse  # an error's traceback may keep this frame; it must not keep them
        lot.leave(self)

    def hop_failed(self, _error: BaseException) -> None:
        """Go on: there was no memory for a call of ``fired``, or for that one."""
        if self.start is not None:
            self.fired(self.after.error)
        else:
            self._lot.leave(self)


class Parking:
    """The parked work of one executor, and whether that executor still accepts. Thread-safe."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.changed = threading.Condition(threading.Lock())
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
        parked = _Parked(self, after, start, refuse)
        with self.changed:
            if self.is_closed:
                raise self.refusal()
            self._parked[parked] = None
        try:
            after.when_ready(parked.fired)
        except BaseException:
            with self.changed:
                held = parked.claim()
            self.leave(parked)
            if held is not None:
                raise
            _log.exception("the token %r raised after it had fired", after)

    def close(self, *, drain: bool) -> None:
        """Accept no more, and wait until nothing is parked.

        With drain that is when every token has fired; without, what is parked is refused now, and
        gets its own token handed on because that has not fired. Twice is fine, also at once.
        """
        with self.changed:
            self.is_closed = True
            claimed = [] if drain else [(item, item.claim()) for item in self._parked]
        for item, held in claimed:
            if held is not None:
                tell(held[1], item.after, self.refusal())
                self.leave(item)
        with self.changed:
            self.changed.wait_for(lambda: not self._parked)

    def leave(self, parked: _Parked) -> None:
        """Count a piece no more that was started or answered."""
        with self.changed:
            self._parked.pop(parked, None)
            if not self._parked:
                self.changed.notify_all()
