"""Steps that take too long end, each for itself, by one timer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from aioinfer.serving.rpc.time_limit import TimeLimit


class Clock:
    """Stands in the place of the running loop's time and timers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.timers = 0.0, list[tuple[float, Any]]()
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now_s)
        monkeypatch.setattr(loop, "call_at", lambda at, call: self.timers.append((at, call)) or 1)

    def go_to(self, now_s: float) -> None:
        self.now_s = now_s
        due = [call for at, call in self.timers if at <= now_s]
        self.timers = [(at, call) for at, call in self.timers if at > now_s]
        for call in due:
            call()


async def staying(limit: TimeLimit, until: asyncio.Event) -> str:
    try:
        with limit.stay():
            await until.wait()
    except TimeoutError:
        return "late"
    return "in time"


async def test_each_step_has_the_whole_time_and_one_timer_serves_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, done, never = TimeLimit(10.0), asyncio.Event(), asyncio.Event()
    clock = Clock(monkeypatch)
    first = asyncio.ensure_future(staying(limit, never))
    await checkpoint()
    clock.go_to(4.0)
    second = asyncio.ensure_future(staying(limit, done))
    third = asyncio.ensure_future(staying(limit, never))
    await checkpoint()
    assert [at for at, _ in clock.timers] == [10.0]
    clock.go_to(10.0)
    assert await first == "late"
    assert [at for at, _ in clock.timers] == [14.0]
    done.set()
    assert await second == "in time"
    clock.go_to(14.0)
    assert (await third, clock.timers) == ("late", [])


async def test_a_task_that_was_late_is_not_cancelled_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit, clock = TimeLimit(10.0), Clock(monkeypatch)
    task = asyncio.ensure_future(staying(limit, asyncio.Event()))
    await checkpoint()
    clock.go_to(10.0)
    assert (await task, task.cancelling()) == ("late", 0)


async def test_another_cancellation_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, clock = TimeLimit(10.0), Clock(monkeypatch)
    task = asyncio.ensure_future(staying(limit, asyncio.Event()))
    await checkpoint()
    task.cancel()
    clock.go_to(10.0)
    with pytest.raises(asyncio.CancelledError):
        await task
