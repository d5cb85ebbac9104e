"""A task beside another: what cancels it, what does not, and how its end is told."""

from __future__ import annotations

import asyncio

import pytest

from aioinfer.runtime.loops import side_task
from aioinfer.runtime.loops.side_task import AutoResetEvent, start_side_task
from unit.runtime.event_loops import EVERY_LOOP, Run, settle

WAIT_S = 20.0  # a bound for what must happen; never slept through


class PlantedError(Exception):
    """What goes wrong here."""


async def nothing() -> None:
    pass


@EVERY_LOOP
def test_an_event_that_is_set_twice_without_a_waiter_ends_one_wait(run: Run) -> None:
    rounds: list[str] = []

    async def main() -> None:
        event = AutoResetEvent()
        event.set()
        event.set()
        await event.wait()

        async def listen() -> None:
            await event.wait()
            rounds.append("second")

        task = start_side_task(listen, nothing)
        await settle()
        assert rounds == []
        event.set()
        await task.wait_until_ended()

    run(main)
    assert rounds == ["second"]


@EVERY_LOOP
@pytest.mark.parametrize("turns", range(4))
def test_a_cancel_ends_the_work_and_never_the_clean_up(run: Run, turns: int) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await AutoResetEvent().wait()
        finally:
            done.append("work")

    async def clean_up() -> None:
        await settle()
        done.append("clean-up")

    async def main() -> None:
        task = start_side_task(work, clean_up)
        await settle(turns)
        task.cancel()
        await settle(2)
        task.cancel()
        await task.wait_until_ended()
        assert not side_task._running

    run(main)
    assert done in (["work", "clean-up"], ["clean-up"])  # it may end before it begins


@EVERY_LOOP
def test_a_cancel_amid_the_clean_up_changes_nothing(run: Run) -> None:
    done: list[str] = []

    async def clean_up() -> None:
        done.append("begun")
        await settle()
        done.append("ended")

    async def main() -> None:
        task = start_side_task(nothing, clean_up)
        while not done:
            await settle(1)
        task.cancel()
        await task.wait_until_ended()

    run(main)
    assert done == ["begun", "ended"]


@EVERY_LOOP
@pytest.mark.parametrize("where", ["work", "clean-up"])
def test_an_error_is_raised_to_who_waits(run: Run, where: str) -> None:
    cleaned: list[int] = []

    async def fail() -> None:
        raise PlantedError

    async def clean_up() -> None:
        cleaned.append(1)
        if where == "clean-up":
            await fail()

    async def main() -> None:
        task = start_side_task(fail if where == "work" else nothing, clean_up)
        with pytest.raises(PlantedError):
            await task.wait_until_ended()
        await task.wait_until_ended()  # which has been told

    run(main)
    assert cleaned == [1]


@pytest.mark.parametrize("count", [1, 2])
async def test_one_that_others_cancel_before_it_begins_does_the_clean_up_and_ends(
    count: int,
) -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("work")

    async def clean_up() -> None:
        await settle()
        done.append("clean-up")

    task = start_side_task(work, clean_up)
    for _ in range(count):  # who takes its place may meet with the same
        for other in asyncio.all_tasks() - {asyncio.current_task()}:
            other.cancel()
        await settle(1)
    await asyncio.wait_for(task.wait_until_ended(), WAIT_S)
    assert done == ["clean-up"]
    assert not side_task._running
