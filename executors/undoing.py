"""What a call has taken, and gives back where an error leaves it: leases and networks of a load."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["note_given_back", "note_taken", "undone_on_error"]

_log = logging.getLogger("aioinfer")


class _Taken(threading.local):
    """What the calls under way on a thread hold, in the order in which it was taken."""

    items: list[tuple[object, Callable[[], object]]] | None = None


_taken = _Taken()


@contextmanager
def undone_on_error() -> Iterator[None]:
    """Give back what this thread takes inside and still holds, the latest first, after an error.

    Calls may be inside each other: what an inner one keeps is then the outer one's. What giving
    back raises is logged, and the error is raised that came first.
    """
    outer = _taken.items
    inner = _taken.items = []
    try:
        yield
        if outer is not None:
            outer += inner
    except BaseException:
        while inner:
            owner, give_back = inner.pop()
            try:
                give_back()
            except Exception as error:
                _log.warning("%r is not given back after an error: %r", owner, error)
        raise
    finally:
        _taken.items = outer


def note_taken(owner: object, give_back: Callable[[], object]) -> None:
    """Have a call under way on this thread give something back if it fails."""
    if _taken.items is not None:
        _taken.items.append((owner, give_back))


def note_given_back(owner: object) -> None:
    """Forget what was taken last under that owner: it is given back, or about to be."""
    items = _taken.items or []
    for place in reversed(range(len(items))):
        if items[place][0] is owner:
            del items[place]
            return
