"""A program past its limit is asked to end, aborted, killed, and at last left behind."""

from __future__ import annotations

import os
import select
import signal
import sys
import time

import pytest
from gpu.limited_runs import GRACE_S, LimitedRun, outcome_text, run_limited, start

LIMIT_S = 30.0


class Clock:
    """A clock that the test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeProcess:
    """Ends by a signal that it listens to, if there is one."""

    pid = 1

    def __init__(self, listens_to: signal.Signals | None) -> None:
        self._listens_to, self._status = listens_to, None
        self.got: list[signal.Signals] = []

    def poll(self) -> int | None:
        return self._status

    def receive(self, number: signal.Signals) -> None:
        self.got.append(number)
        if number is self._listens_to:
            self._status = -number


@pytest.mark.parametrize(
    ("listens_to", "wanted", "over_s"),
    [
        (signal.SIGINT, [signal.SIGINT], 0.0),
        (signal.SIGABRT, [signal.SIGINT, signal.SIGABRT], 4.0),
        (signal.SIGKILL, [signal.SIGINT, signal.SIGABRT, signal.SIGKILL], 6.0),
        (None, [signal.SIGINT, signal.SIGABRT, signal.SIGKILL], GRACE_S),
    ],
)
def test_each_signal_has_its_time(
    listens_to: signal.Signals | None, wanted: list[signal.Signals], over_s: float
) -> None:
    clock, process = Clock(), FakeProcess(listens_to)
    run = LimitedRun(process, LIMIT_S, clock, lambda _, number: process.receive(number))
    began_s = clock()
    while not run.look():
        clock.now_s += 0.25
        assert clock() < began_s + 2 * LIMIT_S
    assert process.got == wanted
    assert run.sent is wanted[-1]
    assert run.took_s == pytest.approx(LIMIT_S + over_s, abs=0.3)
    assert run.status == (None if listens_to is None else -listens_to)


def test_before_its_limit_nothing_is_sent() -> None:
    clock, process = Clock(), FakeProcess(None)
    run = LimitedRun(process, LIMIT_S, clock, lambda _, number: process.receive(number))
    clock.now_s += LIMIT_S - 0.01
    assert not run.look()
    assert not process.got


@pytest.mark.parametrize(
    ("status", "sent", "text"),
    [
        (0, None, "passed"),
        (2, None, "failed with status 2"),
        (-6, None, "ended by SIGABRT"),
        (-9, signal.SIGKILL, "stopped after 30 s by SIGKILL"),
        (0, signal.SIGINT, "stopped after 30 s by SIGINT"),
        (None, signal.SIGKILL, "stopped after 30 s by SIGKILL, and could not be ended"),
    ],
)
def test_an_end_is_said_in_words(
    status: int | None, sent: signal.Signals | None, text: str
) -> None:
    assert outcome_text(status, sent, LIMIT_S) == text


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


@pytest.mark.parametrize(
    ("script", "status"), [("raise SystemExit(3)", 3), ("pass", 0), ("import os; os.abort()", -6)]
)
def test_a_program_that_ends_in_time_gives_its_status(script: str, status: int) -> None:
    assert run_limited(python(script), 30.0) == status


def test_a_program_that_hangs_is_stopped() -> None:
    began_s = time.monotonic()
    assert run_limited(python("import time; time.sleep(60)"), 0.5) is None
    assert time.monotonic() - began_s < 20.0


def test_what_a_program_leaves_behind_is_killed() -> None:
    """The pipe that it writes to ends when the last that has it is gone."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as heard:
        with os.fdopen(writing, "wb") as output:
            process = start(["sh", "-c", "sleep 300 & echo there"], output=output)
        run = LimitedRun(process, 30.0)
        assert heard.readline() == b"there\n"
        assert process.wait(30) == 0
        assert run.look()
        assert not select.select([heard], [], [], 0)[0]
        run.end()
        assert select.select([heard], [], [], 30)[0]
        assert heard.read() == b""
