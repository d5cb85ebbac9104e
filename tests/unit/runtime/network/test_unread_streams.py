"""Streams that are closed before anybody has read them: their sources are closed all the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

import aioinfer
from unit.runtime.event_loops import EVERY_LOOP, Run, settle
from unit.runtime.held_runs import X
from unit.runtime.models import tiny_model

BOTH_KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


class PlantedError(Exception):
    """What the test makes go wrong."""


class Source:
    """Gives X for ever; counts what was pulled and how often it was closed."""

    def __init__(self, kind: str, error: Exception | None = None) -> None:
        self.kind, self._error = kind, error
        self.pulled_count = self.closed_count = 0

    def _sync(self) -> Iterator[np.ndarray]:
        try:
            while True:
                self.pulled_count += 1
                yield X
        finally:
            self._close()

    async def _async(self) -> AsyncIterator[np.ndarray]:
        try:
            while True:
                self.pulled_count += 1
                yield X
        finally:
            await settle(1)
            self._close()

    def _close(self) -> None:
        self.closed_count += 1
        if self._error is not None:
            raise self._error

    async def begun(self) -> Any:
        """Open it, and pull one item: there is something to close."""
        if self.kind == "sync":
            items = self._sync()
            next(items)
            return items
        async_items = self._async()
        await anext(async_items)
        return async_items


def in_streams(
    network: aioinfer.ExecutableNetwork, items: Any, outer_count: int
) -> AsyncGenerator[Any, None]:
    """Open a stream over the items, and so many others, each over the one before."""
    stream = network.stream(items)
    for _ in range(outer_count):
        stream = network.stream(stream)
    return stream


@EVERY_LOOP
@BOTH_KINDS
@pytest.mark.parametrize("outer_count", [0, 1, 2])
def test_closing_it_closes_a_source_that_was_begun(
    network: aioinfer.ExecutableNetwork, run: Run, kind: str, outer_count: int
) -> None:
    source = Source(kind)

    async def main() -> None:
        stream = in_streams(network, await source.begun(), outer_count)
        async with aclosing(stream):
            assert source.closed_count == 0
        assert source.closed_count == 1
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(main)
    assert (source.pulled_count, source.closed_count) == (1, 1)


@EVERY_LOOP
@BOTH_KINDS
def test_closing_one_that_was_read_closes_the_source_once(
    core: aioinfer.Core, run: Run, kind: str
) -> None:
    source, network = Source(kind), core.load_network(tiny_model(), "REFERENCE.0")

    async def main() -> None:
        stream = network.stream(await source.begun())
        await anext(stream)
        await stream.aclose()
        assert source.closed_count == 1

    run(main)
    assert source.closed_count == 1


@EVERY_LOOP
@BOTH_KINDS
def test_an_error_thrown_into_it_closes_the_source(
    network: aioinfer.ExecutableNetwork, run: Run, kind: str
) -> None:
    source = Source(kind)

    async def main() -> None:
        stream = network.stream(await source.begun())
        with pytest.raises(PlantedError, match="thrown"):
            await stream.athrow(PlantedError("thrown"))
        assert source.closed_count == 1

    run(main)


@EVERY_LOOP
@BOTH_KINDS
def test_what_closing_the_source_raises_reaches_who_closes_once(
    network: aioinfer.ExecutableNetwork, run: Run, kind: str
) -> None:
    source = Source(kind, PlantedError("on the way out"))

    async def main() -> None:
        stream = network.stream(await source.begun())
        with pytest.raises(PlantedError, match="on the way out"):
            await stream.aclose()
        await stream.aclose()

    run(main)
    assert source.closed_count == 1
