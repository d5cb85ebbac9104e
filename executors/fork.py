"""What an object needs to know about fork: whether this is still the process it was made in.

After ``fork`` the child has one thread. No worker, timer or completion thread exists there, and a
lock that one of them held stays locked for ever. So whatever owns a thread asks its mark first,
before it touches a lock or a queue.
"""

from __future__ import annotations

import os
from typing import Unpack
from weakref import WeakSet

from ..errors import ClosedError, Place


class ProcessMark:
    """Remembers the process in which it was made. Thread-safe; every run looks at it."""

    __slots__ = ("__weakref__", "is_current")

    def __init__(self) -> None:
        self.is_current = True
        """False in a child that was forked after the mark was made."""
        _marks.add(self)

    def error(self, what: str, **place: Unpack[Place]) -> ClosedError:
        """Make the error for an object that came over a fork."""
        text = f"{what} was made before fork; load in the child"
        return ClosedError(text, is_after_fork=True, **place)

    def check(self, what: str) -> None:
        """Raise ClosedError in a child that was forked after the mark was made."""
        if not self.is_current:
            raise self.error(what)


_marks: WeakSet[ProcessMark] = WeakSet()


def _renew_in_child() -> None:
    for mark in list(_marks):
        mark.is_current = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)
