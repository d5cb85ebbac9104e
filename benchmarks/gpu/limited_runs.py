"""Programs that are run one after the other for a limited time, each in a process of its own.

One that fails or is stopped does not end the others. Used by ``run.py`` beside it, and by
``tests/gpu/suites.py``.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

__all__ = ["Outcome", "chosen", "run_in_turn", "run_limited"]


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


def run_limited(
    command: Sequence[str],
    limit_s: float,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> int | None:
    """Run a program and what it starts; its exit status, or None if it was stopped at the limit.

    ``limit_s`` may be infinite. Folder and environment are ours where none is given; with ``log``
    its output and its errors go there, and nowhere else.
    """
    output = log.open("wb") if log else None
    try:
        with subprocess.Popen(
            command,
            cwd=folder,
            env=None if environment is None else dict(environment),
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=True,
        ) as process:
            try:
                return process.wait(None if limit_s == math.inf else limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
    finally:
        if output:
            output.close()
