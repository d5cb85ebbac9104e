"""What an object needs to know about fork: whether this is still the process it was made in.

After ``fork`` the child has one thread. No worker, timer or completion thread exists there, and a
lock that one of them held stays locked for ever. So whatever owns a thread asks its mark first,
before it touches a lock or a queue.
"""

from __future__ import annotations

import os

from ..errors import ClosedError


class _Forks:
    """How many forks lie between the process that imported this module and the one it runs in."""

    count = 0


def _count_fork() -> None:
    _Forks.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class ProcessMark:
    """Remembers the process in which it was made. Thread-safe, and cheap enough for every run."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = _Forks.count

    @property
    def is_current(self) -> bool:
        """False in a child that was forked after the mark was made."""
        return self._count == _Forks.count

    def error(self, what: str) -> ClosedError:
        """Make the error for an object that came over a fork."""
        return ClosedError(f"{what} was made before fork; load in the child")

    def check(self, what: str) -> None:
        """Raise ClosedError in a child that was forked after the mark was made."""
        if self._count != _Forks.count:
            raise self.error(what)
