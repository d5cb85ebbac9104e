"""One awaited call among those that share a run: what it brings, and how it takes its results.

It is used on the thread of its event loop, but for what its bundle writes as the run ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ...executors import as_shortage
from ...runtime.runs.error_frames import own_error
from ...runtime.runs.run import Run
from .length_padding import LengthPadding

if TYPE_CHECKING:
    import asyncio

__all__ = ["Part", "wake_all"]

_NO_COPIES: Mapping[str, Any] = MappingProxyType({})


class PartBundle(Protocol):
    """What a call asks of the bundle that it is in."""

    run: Run | None
    """The one that it shares; None while it is gathered."""
    row_count: int
    """Of all calls."""
    batched_outputs: frozenset[str]
    padding: LengthPadding | None
    lines: Sequence[tuple[str, Any]] | None
    """The outputs, of which each call gets its own rows; None: look at all that there may be."""

    def give_up(self, part: Part) -> None:
        """Forget a call whose task was cancelled."""


class Part:
    """One awaited call, in a bundle."""

    # What most calls leave as it is.
    bundle: PartBundle | None = None
    run_id = 0
    begin = 0
    """Its first row among those of the bundle."""
    is_counted = False
    """Its outcome is settled."""
    copies = _NO_COPIES
    """Its own, of outputs that have no rows; the first call of a run gets those themselves."""
    outputs: dict[str, Any] | None = None
    """Those of a run of its own, as is the next."""
    error: BaseException | None = None
    run: Run | None = None
    """One of its own, of the network's, after a run that was carried has failed."""

    def __init__(
        self, inputs: dict[str, Any], row_count: int, future: asyncio.Future[None]
    ) -> None:
        self.inputs, self.row_count, self.future = inputs, row_count, future
        self.arrived_ns = perf_counter_ns()

    def leave(self) -> None:
        """Give it up: no caller will ask for the results."""
        bundle, self.bundle = self.bundle, None
        if bundle is not None:
            bundle.give_up(self)

    def results(self) -> dict[str, Any]:
        """Return the outputs, or raise the error; when ``future`` is done."""
        bundle, self.bundle = self.bundle, None
        assert bundle is not None
        lines = bundle.lines
        if lines is not None:
            begin, end = self.begin, self.begin + self.row_count
            own: dict[str, Any] = {}
            for name, value in lines:
                own[name] = value[begin:end]
            return own
        if self.run is not None:
            alone: dict[str, Any] = self.run.outcome()
            return alone
        if self.error is not None:
            raise as_shortage(self.error, f"running request {self.run_id}")
        if self.outputs is not None:
            return self.outputs
        run, row_count = bundle.run, bundle.row_count
        assert run is not None
        if run.error is not None:
            raise own_error(run.error)
        batched, begin, end = bundle.batched_outputs, self.begin, self.begin + self.row_count
        made: dict[str, Any] = {}
        for name, value in run.bindings.results.items():
            if name not in batched:
                made[name] = self.copies[name] if begin else value
            elif len(value) == row_count:
                made[name] = value[begin:end]
            else:
                line_count = len(value) // row_count
                made[name] = value[begin * line_count : end * line_count]
        padding = bundle.padding
        if padding is not None:
            padding.cut(made, padding.length_of(self.inputs))
        return made


def wake_all(parts: Sequence[Part]) -> None:
    """Have the tasks of these calls go on, on the thread of their loop."""
    for part in parts:
        if not part.future.done():
            part.future.set_result(None)
