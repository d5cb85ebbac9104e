"""AtomicRun: a run that one call begins, computes and ends, and the terms on which that may be.

Theory of operation. Native code that keeps the interpreter's lock is alone: as long as it runs no
Python and lets go of nothing, no other thread can begin, cancel or close anything, take one of our
locks, or look at what is half done. So what a run needs elsewhere to be safe from others (a slot, a
Stop, locks, Ctrl-C held back) it does not need there, if all is as the terms say when it begins:
locks are free, the network is open, its lane is not lent. It is counted and recorded in the same
call; nobody can tell it from a run that others could have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..tracing.recorder import SpanFields
from .bindings import Results

__all__ = ["AtomicRun", "AtomicTerms", "Attempt"]


class AtomicRun:
    """What is left of such a run: it has ended well. As far as a request asks, like a Run."""

    __slots__ = ("duration_ns", "results")

    results: dict[str, Any]
    duration_ns: int
    """From its beginning to its end, which is when it was answered as well."""
    is_answered = has_ended = True
    error = userdata = callback_loop = profile = None
    stage = ""

    def outcome(self) -> Results:
        """Return the results."""
        return self.results

    def cancel(self) -> None:
        """Do nothing: its outcome is settled."""

    def wait_until_ended(self, timeout_s: float | None) -> bool:
        """Return at once."""
        return True

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call at once."""
        call()

    def forget_ended(self, call: Callable[[], None]) -> None:
        """Do nothing: it has been called."""


Attempt = Callable[[Any, Any], AtomicRun | None]
"""Called with the inputs and the request, or None; returns a run that has ended, or None: it cannot
be made so, for it is not exactly as the one before, or not now, and nothing has been noted."""


class AtomicTerms(NamedTuple):
    """When runs may be atomic, and what is noted of each. Native code reads it, in this order.

    Attributes are plain ones, calls are of C and without arguments: none runs Python.
    """

    same: tuple[tuple[object, str, object], ...]
    """Objects, names of attributes, and what these have to be."""
    calls: tuple[tuple[Callable[[], object], bool], ...]
    """And whether each has to return something true."""
    owner_type: type
    """The class of the request whose run it is; of another, attributes may be anything."""
    owner_same: tuple[tuple[str, object], ...]
    """Names of its attributes, and what these have to be."""
    owner_lock: str
    """The attribute with its lock, which has to be free."""
    owner_run: str
    """The attribute that gets the run."""
    owner_id: str
    run_ids: Iterator[int]
    """Numbers runs that are of no request."""
    ages: Iterator[int]
    make_run: Callable[[], AtomicRun]
    place: tuple[str, str]
    """Of the stage that it is: for its span, as the next two."""
    lane: str
    part: object
    note_latency: Callable[[int], None]
    note_span: Callable[[SpanFields], None]
    notes: tuple[tuple[Callable[[Any], None], Any], ...]
    """Calls of C, and what each is called with for each run."""
    counters: tuple[tuple[object, str], ...]
    """Objects and their attributes that count runs."""
