"""The parent of workers: hands out batches, tells deaths and hangs, and goes on behind them."""

from __future__ import annotations

import json
import os
import selectors
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .acceptance import Acceptance
from .drawing import Draw
from .oracle import Finding
from .worker import Progress, fork_worker

__all__ = ["BATCH", "run_cases"]

BATCH = 500
"""Cases of one process: to start one, with its helper and devices, takes as long as 40."""
_HANG_S = 60.0
"""How long a case may stay on one device; the machine may be busy with other things."""

Tell = Callable[[int, Finding], None]


@dataclass
class _Child:
    pid: int
    say: int
    indices: range
    progress: Progress
    errors: Path
    rest: bytes = b""
    seen: tuple[int, int] = (-1, -1)
    since_s: float = field(default_factory=time.monotonic)
    is_hanging: bool = False


def run_cases(
    draw: Draw,
    batches: Iterator[range],
    devices: Sequence[str],
    jobs: int,
    tell: Tell,
) -> Acceptance:
    """Run batches of cases in as many processes as ``jobs``; return how many the devices accepted.

    ``tell`` gets each finding with the index of its case, on this thread.
    """
    acceptance = Acceptance(devices)
    left: list[range] = []
    children: dict[int, _Child] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, selectors.DefaultSelector() as poll:
        try:
            while True:
                while len(children) < jobs:
                    indices = left.pop() if left else next(batches, None)
                    if indices is None:
                        break
                    child = _start(draw, indices, devices, Path(folder))
                    children[child.say] = child
                    poll.register(child.say, selectors.EVENT_READ)
                if not children:
                    return acceptance
                for key, _ in poll.select(timeout=1.0):
                    child = children[key.fd]
                    if _read(child, tell):
                        continue
                    poll.unregister(key.fd)
                    del children[key.fd]
                    rest = _ended(child, draw, devices, tell, acceptance)
                    left += [rest] if rest else []
                for child in children.values():
                    _watch(child)
        finally:
            for child in children.values():
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)


def _start(draw: Draw, indices: range, devices: Sequence[str], folder: Path) -> _Child:
    progress = Progress()
    progress.note(indices.start, 0)
    errors = folder / f"{indices.start}.txt"
    pid, say = fork_worker(draw, indices, devices, progress, errors)
    return _Child(pid, say, indices, progress, errors)


def _read(child: _Child, tell: Tell) -> bool:
    """Take what a child says; False once it says no more."""
    data = os.read(child.say, 1 << 16)
    *lines, child.rest = (child.rest + data).split(b"\n")
    for line in lines:
        entry = json.loads(line)
        tell(entry.pop("index"), Finding(**entry))
    return bool(data)


def _watch(child: _Child) -> None:
    """End a child that has stayed where it is for too long; it tells where that was."""
    seen, now_s = child.progress.read(), time.monotonic()
    if seen != child.seen:
        child.seen, child.since_s = seen, now_s
    elif now_s - child.since_s > _HANG_S:
        os.kill(child.pid, signal.SIGKILL if child.is_hanging else signal.SIGABRT)
        child.is_hanging, child.since_s = True, now_s


def _ended(
    child: _Child, draw: Draw, devices: Sequence[str], tell: Tell, acceptance: Acceptance
) -> range:
    """Clear up behind a child, count what it did, and return the cases that are left."""
    os.close(child.say)
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    index, number = child.progress.read()
    for place, name in enumerate(devices):
        acceptance.add(name, *child.progress.counts(place))
    child.progress.close()
    if status == 0:
        acceptance.case_count += len(child.indices)
        return range(0)
    device = devices[number]
    category = "hang" if child.is_hanging else "died"
    end = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
    said = child.errors.read_text(encoding="utf-8", errors="replace")
    group = f"{category} {device} {draw(index).ops} {_innermost(said)}"
    detail = f"{end} in the batch from {child.indices.start}\n{_tail(said)}"
    tell(index, Finding(category, device, group, detail))
    acceptance.case_count += index + 1 - child.indices.start
    return range(index + 1, child.indices.stop)


def _innermost(said: str) -> str:
    """Find where it ended in what faulthandler or a sanitizer wrote."""
    for line in said.splitlines():
        if "SUMMARY:" in line or "runtime error:" in line:
            return line.strip()[:160]
    frames = [line.strip() for line in said.splitlines() if line.startswith('  File "')]
    return " < ".join(frame.rpartition("/")[2] for frame in frames[:2])


def _tail(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return "\n".join(f"      {line}" for line in lines[:14])
