"""Processes that do nothing but compute, beside the engines that are measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

END_TIMEOUT_S = 10.0
STARTED = b"busy\n"
# It ends by itself if the process that started it is gone, however that ended.
PROGRAM = """
import os, sys
parent = int(sys.argv[1])
print("busy", flush=True)
while os.getppid() == parent:
    for number in range(10_000_000):
        pass
"""


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[list[int]]:
    """Keep a number of processes counting; yields their ids once all of them do."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(_busy_process()) for _ in range(count)]
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != STARTED:
                raise RuntimeError(f"a busy process ended with status {process.wait()}")
        yield [process.pid for process in processes]


@contextlib.contextmanager
def _busy_process() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", PROGRAM, str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait(END_TIMEOUT_S)


def cpu_s_of(process_id: int) -> float:
    """Give the seconds that a process has computed, all of its threads together; 0 if it ended."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    return cpu_s_in(text, os.sysconf("SC_CLK_TCK"))


def cpu_s_in(stat: str, ticks_per_s: int) -> float:
    """Read the seconds in user and system mode from a process's stat; its name may have spaces."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / ticks_per_s
