"""Runs of one program whose arrays are like those of a run before: checked and computed in C."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.runs.stage import Stop
from ..native.step_runner import AlikeCalls
from .growing_arena import GrowingArena
from .program import Program

__all__ = ["ProgramRuns"]

Array = np.ndarray[Any, Any]


class ProgramRuns:
    """Computes runs that are like one that a program has run, on its lane; an ``AlikeRuns``.

    ``calls`` are the program's, and ``may_repeat`` says whether its plan is still the one to use.
    The program is not held: it goes with its stream's ``arena``.
    """

    def __init__(
        self,
        program: Program,
        calls: AlikeCalls,
        arena: GrowingArena,
        may_repeat: Callable[[], bool],
    ) -> None:
        self._find_program, self._arena = weakref.ref(program), arena
        self.take: Callable[[Any], tuple[Array, ...] | None] = calls.take
        self._run, self._may_repeat = calls.run, may_repeat

    @property
    def is_bound(self) -> bool:
        """True while its program is bound to the memory of its stream."""
        program = self._find_program()
        return program is not None and program.arena is self._arena.memory

    @property
    def is_current(self) -> bool:
        program = self._find_program()
        return program is not None and program.arena is self._arena.memory and self._may_repeat()

    def compute(self, taken: tuple[Array, ...], results: dict[str, Any], stop: Stop) -> None:
        try:
            failure = self._run(taken, results, stop.word)
        except (BufferError, TypeError, ValueError) as error:
            raise Program.unreadable(error) from error
        if failure is not None:
            program = self._find_program()
            assert program is not None  # the lane has it
            raise program.error_of(failure, (*taken, *results.values()), stop)
