"""Programs that run for a limited time, each in a process of its own; standard library only.

One that fails, crashes or hangs does not end the others. Past its limit a program is asked to end
first, so that it says what it has; one that does not listen, because it is blocked in a driver, is
aborted, at which Python's faulthandler shows where all threads are; then it is killed. One that not
even that ends is left behind. Used by ``run.py`` beside it, and by ``tests/gpu/ladder.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, TypeVar

__all__ = [
    "ENDINGS",
    "GRACE_S",
    "LimitedRun",
    "Named",
    "Outcome",
    "chosen",
    "outcome_text",
    "run_in_turn",
    "run_limited",
    "start",
]

ENDINGS = ((0.0, signal.SIGINT), (4.0, signal.SIGABRT), (6.0, signal.SIGKILL))
"""Seconds after the limit, and what is sent then."""
GRACE_S = 8.0
"""So long after its limit a program has ended, or is left behind."""
_LOOK_S = 0.05
_REAPED_S = 1.0


class Named(Protocol):
    """What can be chosen by its name."""

    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Named)


@dataclass(frozen=True)
class Outcome:
    """How a program ended; ``text`` says it in words."""

    name: str
    text: str
    took_s: float
    is_failure: bool
    status: int | None = None
    """What it ended with; None if it was stopped, or never begun."""


class Process(Protocol):
    """What is asked of a process."""

    pid: int

    def poll(self) -> int | None: ...


class LimitedRun:
    """A program with a limit of time, from now on; its starter calls ``look`` often.

    ``limit_s`` may be infinite. ``process`` leads a process group.
    """

    def __init__(
        self,
        process: Process,
        limit_s: float,
        clock: Callable[[], float] = time.monotonic,
        send: Callable[[Process, signal.Signals], None] | None = None,
    ) -> None:
        self._process, self._limit_s = process, limit_s
        self._clock, self._send = clock, _send if send is None else send
        self._began_s = clock()
        self._due = list(ENDINGS)
        self.took_s = 0.0
        self.status: int | None = None
        """What it ended with; negative for a signal."""
        self.sent: signal.Signals | None = None
        """The last signal that was sent, if it was past its limit."""

    def look(self) -> bool:
        """Send what is due; True once it has ended, or is left behind."""
        if self.status is not None:
            return True
        self.took_s = self._clock() - self._began_s
        self.status = self._process.poll()
        if self.status is not None:
            return True
        over_s = self.took_s - self._limit_s
        while self._due and over_s >= self._due[0][0]:
            self.sent = self._due.pop(0)[1]
            self._send(self._process, self.sent)
        return over_s >= GRACE_S

    def end(self) -> None:
        """Kill it, and what it has started and left behind; waits for a moment until it is gone."""
        self._send(self._process, signal.SIGKILL)
        until_s = self._clock() + _REAPED_S
        while self._process.poll() is None and self._clock() < until_s:
            time.sleep(_LOOK_S / 10)


def start(
    command: Sequence[str],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, but in our session.

    Output and errors go to ``output``; folder and environment are ours where none is given.
    """
    return subprocess.Popen(
        command,
        cwd=folder,
        env=None if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        process_group=0,
    )


def _send(process: Process, number: signal.Signals) -> None:
    """Send it to a program and what it has started, as a terminal does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def outcome_text(status: int | None, sent: signal.Signals | None, limit_s: float) -> str:
    """Say in words how a program ended; "passed" if it did. Pure."""
    if sent is not None:
        left = ", and could not be ended" if status is None else ""
        return f"stopped after {limit_s:.0f} s by {sent.name}{left}"
    if status is not None and status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"failed with status {status}" if status else "passed"


def chosen(names: Sequence[str], items: Sequence[Item]) -> list[Item]:
    """Find items by name, or all without names, in their own order. Pure.

    Raises ValueError, with the names that there are, for one that is none of them.
    """
    there = [item.name for item in items]
    unknown = sorted(set(names) - set(there))
    if unknown:
        raise ValueError(f"unknown: {', '.join(unknown)}; there are {', '.join(there)}")
    return [item for item in items if item.name in names or not names]


def run_in_turn(
    items: Iterable[Item],
    until_s: float,
    least_s: float,
    run: Callable[[Item, float], Outcome],
    clock: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Run one after the other, each told how many seconds are left until ``until_s`` of the clock.

    With less than ``least_s`` left an item is left out, which is no failure.
    """
    outcomes = []
    for item in items:
        left_s = until_s - clock()
        if left_s < least_s:
            outcomes.append(Outcome(item.name, "left out: no time", 0.0, False))
        else:
            outcomes.append(run(item, left_s))
    return outcomes


def run_limited(command: Sequence[str], limit_s: float) -> int | None:
    """Run a program and what it starts; its exit status, or None if it was stopped at the limit."""
    process = start(command)
    run = LimitedRun(process, limit_s)
    try:
        while not run.look():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
    finally:
        run.end()
    return None if run.sent else run.status
