"""What a stream of the stress test is made of, drawn beforehand, and the source that gives it."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from aioinfer.errors import TensorError
from stress.client import DEADLINES_S, INPUTS

Ending = Literal["exhausted", "left", "dropped", "timeout", "cancelled", "unread"]

WRONG_SHAPE = np.zeros((1, 7), np.float32)
MOST_ITEMS = 24
NOTE = re.compile(r"in item (\d+) of a stream over network ")


class SourceError(Exception):
    """Planted: the source of a stream has raised."""


class UnfitError(TensorError):
    """Planted: an item cannot be turned into an array."""


@dataclass(frozen=True)
class StreamPlan:
    """One stream: over what, with which limits, and how its consumer leaves it."""

    index: int
    """Of the network."""
    is_ordered: bool
    kind: Literal["list", "sync", "async"]
    inputs: tuple[int, ...]
    """Indices into INPUTS."""
    unfit_at: int | None
    """The item that cannot start."""
    raises_at: int | None
    """Instead of this item the source raises."""
    options: dict[str, Any]
    ending: Ending
    after: int
    """How many results the consumer takes, if it leaves or is cancelled."""
    timeout_s: float
    """After which it is cancelled, if so."""


def draw_plan(chance: random.Random, indices: list[int]) -> StreamPlan:
    """Draw a stream over one of these networks."""
    length = chance.randrange(1, MOST_ITEMS)
    unfit_at = chance.randrange(length) if chance.random() < 0.15 else None
    raises_at = chance.randrange(length) if chance.random() < 0.15 else None
    return StreamPlan(
        index=chance.choice(indices),
        is_ordered=chance.random() < 0.5,
        kind=chance.choice(("list", "sync", "async")),
        inputs=tuple(chance.randrange(len(INPUTS)) for _ in range(length)),
        unfit_at=unfit_at,
        raises_at=raises_at,
        options={
            "look_ahead": chance.choice((None, None, 1, 3, 40)),
            "deadline_s": chance.choice((*DEADLINES_S[:-1], None)),
            "priority": chance.randrange(-1, 3),
        },
        ending=chance.choice(
            ("exhausted", "exhausted", "left", "dropped", "timeout", "cancelled", "unread")
        ),
        after=chance.randrange(1 + length // 2),
        timeout_s=chance.random() * 0.02,
    )


class Item:
    """An input that counts how often a network has taken it for a run."""

    def __init__(self, x: np.ndarray, unfitness: str) -> None:
        self.x, self._unfitness = x, unfitness
        self.tries = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if self._unfitness == "shape":
            return WRONG_SHAPE
        if self._unfitness:
            raise UnfitError("planted in an item")
        self.tries += 1
        return self.x


class Feed:
    """The source of one stream; knows what it gave, and whether it was closed."""

    def __init__(self, plan: StreamPlan, take: Callable[[], bool]) -> None:
        self._plan, self._take = plan, take
        self.given: list[Item] = []
        self.has_begun = self.has_raised = False
        self.closed = asyncio.Event()

    def open(self) -> Any:
        """Make what ``network.stream`` reads; a list does not raise."""
        if self._plan.kind == "list":
            return list(self._items(self._plan.inputs))
        return self._sync() if self._plan.kind == "sync" else self._async()

    @property
    def is_closed(self) -> bool:
        """True unless it has begun and its end has not come."""
        return self.closed.is_set() or not self.has_begun

    def _items(self, inputs: tuple[int, ...]) -> Iterator[Item]:
        for number, which in enumerate(inputs):
            if not self._take():
                return
            unfitness = ("shape", "error")[which % 2] if number == self._plan.unfit_at else ""
            self.given.append(Item(INPUTS[which], unfitness))
            yield self.given[-1]

    def _sync(self) -> Iterator[Item]:
        self.has_begun = True
        try:
            yield from self._items(self._plan.inputs[: self._plan.raises_at])
            self._raise()
        finally:
            self.closed.set()

    async def _async(self) -> AsyncIterator[Item]:
        self.has_begun = True
        try:
            for item in self._items(self._plan.inputs[: self._plan.raises_at]):
                for _ in range(len(self.given) % 3):
                    await asyncio.sleep(0)
                yield item
            self._raise()
        finally:
            try:
                await asyncio.sleep(0)
            finally:
                self.closed.set()

    def _raise(self) -> None:
        if self._plan.raises_at is not None:
            self.has_raised = True
            raise SourceError("planted in a source")


def item_of(error: BaseException) -> int | None:
    """Read which item's turn has raised this; None if none's: the stream could not be opened."""
    notes = getattr(error, "__notes__", None)
    if not notes:
        return None
    place = NOTE.match(notes[-1])
    assert place is not None, notes
    return int(place.group(1))
