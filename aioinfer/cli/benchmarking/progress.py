"""The progress bar of a measurement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from .measure import Measurement

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(console: Console, measurement: Measurement) -> Iterator[None]:
    """Show a bar while the block runs; nothing where the output is no terminal."""
    if not console.is_terminal:
        yield
        return
    with _MeasurementProgress(console, measurement):
        yield


class _MeasurementProgress(Progress):
    """Reads the measurement when it draws, so that an inference need not tell it."""

    def __init__(self, console: Console, measurement: Measurement) -> None:
        self._measurement = measurement
        super().__init__(
            TextColumn("{task.fields[count]} inferences"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._bar = self.add_task("", total=1.0, count=0)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Draw what has been measured by now."""
        if self.tasks:
            measured = self._measurement
            self.update(self._bar, completed=measured.progress, count=measured.count)
        yield from super().get_renderables()
