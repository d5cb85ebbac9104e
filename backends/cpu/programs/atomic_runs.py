"""Runs of one program whose arrays are like those of a run before: each is one call in C."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from ....runtime.runs.atomic_run import AtomicTerms, Attempt
from .growing_arena import GrowingArena
from .program import Program

__all__ = ["ProgramRuns"]


class ProgramRuns:
    """Makes runs that are like one that a program has run, on its lane; an ``AlikeRuns``.

    ``make_calls`` is the program's; the other terms say that its plan is still the one to use, and
    count that it was. The program is not held: it goes with its stream's ``arena``.
    """

    def __init__(
        self,
        program: Program,
        make_calls: Callable[[AtomicTerms], Attempt],
        arena: GrowingArena,
        same: tuple[object, str, object],
        counters: tuple[tuple[object, str], ...],
    ) -> None:
        self._find_program, self._arena = weakref.ref(program), arena
        self._make_calls, self._same, self._counters = make_calls, same, counters

    @property
    def is_bound(self) -> bool:
        """True while its program is bound to the memory of its stream."""
        program = self._find_program()
        return program is not None and program.arena is self._arena.memory

    def attempts(self, terms: AtomicTerms) -> Attempt:
        """Return the call that makes such a run on these terms, if the program is still there.

        Memory that its stream has outgrown is the program's alone, and serves until it goes.
        """
        return self._make_calls(
            terms._replace(
                same=(*terms.same, self._same),
                calls=(*terms.calls, (self._find_program, True)),
                counters=(*terms.counters, *self._counters),
            )
        )
