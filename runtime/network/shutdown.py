"""What happens at interpreter exit: queued runs are stopped, running ones get a few seconds."""

from __future__ import annotations

import atexit
import itertools
import logging
from time import monotonic
from typing import Protocol
from weakref import WeakValueDictionary

__all__ = ["close_at_exit"]

GRACE_S = 5.0  # what a running inference gets at exit; longer, and a user would press Ctrl-C

_log = logging.getLogger("aioinfer")


class Closable(Protocol):
    """What can be closed in a given time."""

    def abort(self) -> None:
        """Refuse new runs, and stop those that are queued or under way; does not wait."""

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> bool:
        """End what is queued, wait for what runs; False if that takes longer."""


_open: WeakValueDictionary[int, Closable] = WeakValueDictionary()
_numbers = itertools.count()


def close_at_exit(network: Closable) -> None:
    """Have it closed when the interpreter exits, if it still lives then; held weakly."""
    _open[next(_numbers)] = network


def _close_all() -> None:
    give_up_at = monotonic() + GRACE_S
    # Outer networks were made after those that they use: the latest goes first.
    networks = list(reversed(list(_open.values())))
    for network in networks:
        network.abort()
    for network in networks:
        try:
            network.close(drain=False, timeout_s=max(0.0, give_up_at - monotonic()))
        except Exception:
            _log.exception("closing %r at exit", network)


atexit.register(_close_all)
