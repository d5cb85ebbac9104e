"""An executor that is one of two, chosen for each piece of work."""

from __future__ import annotations

from collections.abc import Callable

from ....executors import Lane, Ready, TaskExecutor, Then

__all__ = ["ChosenExecutor"]


class ChosenExecutor(TaskExecutor):
    """Runs on ``heavy`` what ``is_heavy`` says is too long for the calling thread.

    It asks when the work arrives. Both executors belong to others, which close them.
    """

    def __init__(
        self,
        name: str,
        is_heavy: Callable[[], bool],
        light: TaskExecutor,
        heavy: TaskExecutor,
    ) -> None:
        super().__init__(name)
        self._is_heavy, self._light, self._heavy = is_heavy, light, heavy

    def run(self, function: Callable[[Lane], Ready], after: Ready, then: Then) -> None:
        chosen = self._heavy if self._is_heavy() else self._light
        chosen.run(function, after, then)

    def close(self) -> None:
        """Do nothing: it has nothing of its own."""
