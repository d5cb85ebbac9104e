"""Imports that calls make, and starts of devices: a fork waits for those that are under way.

Theory of operation. Python holds a lock of a module while that is imported, and renews none in a
child: one that is forked meanwhile finds it held for ever, by a thread that it has not. So what a
call imports, it imports within ``late_imports``, and a fork waits while a thread is within. So it
is with a device that starts: what that opens once for the process lies behind locks, too. Threads
within do not wait for each other here, as other locks see to that, and a fork waits for nothing
that its own thread has under way: that goes on in the child.

A thread that imports must not wait for one that forks. It may for the lock of ``logging``, which a
fork holds, too: handlers run in the order that is opposite to that of their registration, so that
has to be imported before this module registers its own. A module whose body forks on another thread
and waits for that is the rest; ``PATIENCE_S`` ends it.
"""

from __future__ import annotations

import logging
import os
import threading
from time import monotonic

__all__ = ["LateImports", "late_imports"]

PATIENCE_S = 60.0
"""How long a fork waits; imports that end take seconds, from a cold disk."""

_log = logging.getLogger("aioinfer")


class LateImports:
    """A ``with`` block around imports; any number of threads may be inside, and inside twice.

    What is inside waits for no thread that may fork.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # of a signal handler, too, which may import or fork
        self._changed = threading.Condition(self._lock)
        self._depths: dict[int, int] = {}
        """How many blocks each thread is inside of."""
        self._waiting_count = 0

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            self._depths[thread] = self._depths.get(thread, 0) + 1

    def __exit__(self, *exc_info: object) -> None:
        thread = threading.get_ident()
        with self._lock:
            depth = self._depths.pop(thread) - 1
            if depth:
                self._depths[thread] = depth
            elif self._waiting_count:
                self._changed.notify_all()

    @property
    def waiting_count(self) -> int:
        """How many threads wait to fork; out of date as soon as it is read."""
        return self._waiting_count

    def before_fork(self) -> None:
        """Wait until no other thread is inside, and let none in until the fork is done."""
        give_up_at = monotonic() + PATIENCE_S
        self._lock.acquire()
        self._waiting_count += 1
        try:
            while self._depths.keys() - {threading.get_ident()}:
                if not self._changed.wait(max(0.0, give_up_at - monotonic())):
                    _log.warning(
                        "a fork goes on after %g s amid an import, or a device's start, that has "
                        "not ended: its child may wait for that for ever",
                        PATIENCE_S,
                    )
                    break
        finally:
            self._waiting_count -= 1

    def after_in_parent(self) -> None:
        """Let threads in again."""
        self._lock.release()

    def after_in_child(self) -> None:
        """Forget the threads that are not in the child, which may hold the lock."""
        thread = threading.get_ident()
        own = self._depths.get(thread, 0)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting_count = 0
        self._depths = {thread: own} if own else {}


late_imports = LateImports()
"""That of the process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=late_imports.before_fork,
        after_in_parent=late_imports.after_in_parent,
        after_in_child=late_imports.after_in_child,
    )
