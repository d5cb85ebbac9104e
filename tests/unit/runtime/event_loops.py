"""The event loops that tests run on, and how to let one come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio

from aioinfer.runtime.loops.completion import let_loop_turn
from aioinfer.testing import MockDevices

uvloop = pytest.importorskip("uvloop")

Main = Callable[[], Coroutine[Any, Any, Any]]
Run = Callable[[Main], None]


def on_asyncio(main: Main) -> None:
    asyncio.run(main())


def on_uvloop(main: Main) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def on_trio(main: Main) -> None:
    trio.run(main)


EVERY_LOOP = pytest.mark.parametrize("run", [on_asyncio, on_uvloop, on_trio])


def current_loop() -> Any:
    """Return the running loop, or trio's token of it."""
    try:
        return trio.lowlevel.current_trio_token()
    except RuntimeError:
        return asyncio.get_running_loop()


async def settle(turns: int = 20) -> None:
    """Turn the loop until nothing is left but what waits for the test."""
    for _ in range(turns):
        await let_loop_turn()


async def finish(held: MockDevices) -> None:
    """Have the device end all it has and gets, until nothing comes any more."""
    await settle()
    while held[0].held.waiting_count:
        held[0].held.release()
        await settle()
