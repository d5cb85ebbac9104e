"""Which helper process a call gets: one that is idle, or one more, or the first that is free.

Theory of operation. A thread owns the helper that it takes until it gives it back, only after a
whole exchange. Anything else that becomes of it, an interrupt in whatever place included, makes it
garbage, and a helper that is garbage ends its process and its count: nothing has to be undone.
There is no lock that an interrupt could leave taken.
"""

from __future__ import annotations

import os
import time
from queue import Empty, SimpleQueue
from weakref import WeakValueDictionary

from ...errors import OverloadedError
from .helper_process import Helper

__all__ = ["HelperPool"]

MOST_HELPERS = min(4, max(2, os.cpu_count() or 1))  # each takes some 70 MB
WAIT_LIMIT_S = 120.0
_LOOK_AGAIN_S = 0.5  # a helper that was lost, and not given back, has made room for another


class _Waiting:
    """A caller that takes a helper, and may have to wait for one."""


class HelperPool:
    """The helpers of this process. Thread-safe."""

    def __init__(self) -> None:
        self._idle: SimpleQueue[Helper] = SimpleQueue()
        self._helpers: WeakValueDictionary[int, Helper] = WeakValueDictionary()
        self._waiting: WeakValueDictionary[int, _Waiting] = WeakValueDictionary()

    def helpers(self) -> list[Helper]:
        """List the helpers that are not ended, idle or at work."""
        known = (reference() for reference in self._helpers.valuerefs())
        return [helper for helper in known if helper is not None and not helper.is_ended]

    def take(self) -> Helper:
        """Return a helper, perhaps one that is still loading; blocks while all are busy.

        Raises OverloadedError if that takes too long, and what ``Helper.start`` raises.
        """
        give_up_at = time.monotonic() + WAIT_LIMIT_S
        waiting = _Waiting()
        self._waiting[id(waiting)] = waiting
        while True:
            helper = self._idle_one() or self._new_one() or self._free_one()
            if helper is not None:
                return helper
            if time.monotonic() >= give_up_at:
                raise OverloadedError(
                    f"the {MOST_HELPERS} helper processes for onnx were busy with other models "
                    f"for {WAIT_LIMIT_S:.0f} s; load fewer models side by side, or try again",
                    waiting_count=len(self._waiting),
                    limit=MOST_HELPERS,
                )

    def give_back(self, helper: Helper) -> None:
        """Return a helper that has answered, and is in step, to the pool."""
        self._idle.put(helper)

    def start_one(self) -> None:
        """Start an idle helper, which may load for a while, if there is room for one.

        Raises what ``Helper.start`` raises.
        """
        helper = self._idle_one() or self._new_one()
        if helper is not None:
            self._idle.put(helper)

    def forget_all(self) -> None:
        """Leave the processes to the parent of this forked process."""
        for helper in self.helpers():
            helper.forget()

    def _idle_one(self) -> Helper | None:
        while True:
            try:
                helper = self._idle.get_nowait()
            except Empty:
                return None
            if helper.is_usable():
                return helper
            helper.end()

    def _new_one(self) -> Helper | None:
        helper = Helper()
        self._helpers[id(helper)] = helper
        if len(self.helpers()) > MOST_HELPERS:  # two that come at once may both step back
            helper.end()
            return None
        try:
            helper.start()
        except BaseException:
            helper.end()
            raise
        return helper

    def _free_one(self) -> Helper | None:
        try:
            helper = self._idle.get(timeout=_LOOK_AGAIN_S)
        except Empty:
            return None
        if helper.is_usable():
            return helper
        helper.end()
        return None
