"""New processes that start a network: how long until the first result, and whose memory it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .starts import Files

__all__ = ["Memory", "first_result_s", "memory_of_two"]

BENCHMARKS = Path(__file__).parents[1]
MIB = 1 << 20


@dataclass(frozen=True)
class Memory:
    """Memory of one of two equal processes, in MiB, when both have a first result.

    ``pss`` shares out what both have. Of the file that the network was started from: how much is
    mapped, how much of that was touched when it was ready, and after the first result.
    """

    way: str
    rss_mib: float
    pss_mib: float
    mapped_mib: float
    touched_ready_mib: float
    touched_ran_mib: float


@contextmanager
def _process(way: str, files: Files, inputs: Path, *, waits: bool) -> Iterator[subprocess.Popen]:
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); "
        f"from loads.new_process import main; "
        f"main({way!r}, {files.model!r}, {files.folder!r}, {str(inputs)!r}, waits={waits})"
    )
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,  # the first process compiles Python's files, as an installer does
    )
    try:
        yield process
    finally:
        process.communicate("\n\n")
    if process.returncode:
        raise SystemExit(f"{way}: a new process ended with {process.returncode}")


def _expect(process: subprocess.Popen, word: str) -> None:
    assert process.stdout is not None
    found = process.stdout.readline().strip()
    if found != word:
        raise SystemExit(f"a new process said {found!r} and not {word!r}")


def first_result_s(way: str, files: Files, inputs: Path) -> float:
    """Return the seconds from the start of an interpreter to its first result."""
    began_s = time.perf_counter()
    with _process(way, files, inputs, waits=False) as process:
        _expect(process, "ready")
        _expect(process, "ran")
        return time.perf_counter() - began_s


def memory_of_two(way: str, files: Files, inputs: Path) -> Memory:
    """Start two processes side by side and return the memory of the first."""
    with (
        _process(way, files, inputs, waits=True) as one,
        _process(way, files, inputs, waits=True) as two,
    ):
        for process in (one, two):
            _expect(process, "ready")
        _, touched_ready = _mapped(one.pid, files)
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            _expect(process, "ran")
        mapped, touched_ran = _mapped(one.pid, files)
        return Memory(
            way,
            _sum(one.pid, "Rss"),
            _sum(one.pid, "Pss"),
            mapped,
            touched_ready,
            touched_ran,
        )


def _sum(process: int, field: str) -> float:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024 / MIB


def _mapped(process: int, files: Files) -> tuple[float, float]:
    """Return how much of files of the engines' folder, or of the model, is mapped and touched."""
    mapped = touched = 0
    is_ours = False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            path = words[5] if len(words) > 5 else ""
            is_ours = path == files.model or path.startswith(files.folder)
        elif is_ours and words[0] == "Size:":
            mapped += int(words[1])
        elif is_ours and words[0] == "Rss:":
            touched += int(words[1])
    return mapped * 1024 / MIB, touched * 1024 / MIB
