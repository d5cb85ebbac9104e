"""Work that has begun: what is over at its first step needs no task, timer or watch beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Begun"]

T = TypeVar("T")


class Begun(Generic[T]):
    """Makes the first step of an awaitable, on the caller's task; raises what that raises.

    ``is_over``: it did not wait, and ``result`` is what it returned. Otherwise await this, once, as
    one would have awaited the work.
    """

    __slots__ = ("_steps", "_waits_for", "is_over", "result")

    result: T

    def __init__(self, work: Awaitable[T]) -> None:
        steps = work.__await__()
        try:
            self._waits_for = next(steps)
        except StopIteration as end:
            self.is_over, self.result = True, end.value
        else:
            self.is_over, self._steps = False, steps

    def __await__(self) -> Generator[Any, Any, T]:
        if self.is_over:
            return self.result
        steps, waits_for = self._steps, self._waits_for
        try:
            while True:
                try:
                    given = yield waits_for
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as error:
                    waits_for = steps.throw(error)
                else:
                    waits_for = steps.send(given)
        except StopIteration as end:
            result: T = end.value
            return result
