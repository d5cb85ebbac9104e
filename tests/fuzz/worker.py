"""A child process that runs a batch of cases; what it does last is in memory that its parent reads.

It may die or hang at any time: that is a finding, and the parent goes on behind the case.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import resource
import struct
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import aioinfer

from .asked_once import asked_once
from .drawing import Case, Draw
from .guarded import GuardedMemory
from .oracle import Failure, Finding, Outcome, judge
from .running import run_case

__all__ = ["Progress", "fork_worker", "open_core", "run_batch"]

_SLOW_S = 5.0
"""Processor time of one case on one device that is too much: the tensors are tiny."""
_DATA_BYTES = 3 << 30


class Progress:
    """What a child does just now, for its parent: index of the case, number of the device.

    And how many valid runs each device was given, and to how many it gave a result.
    """

    _FORMAT = struct.Struct("qq")

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)

    def note(self, index: int, device: int) -> None:
        self._FORMAT.pack_into(self._shared, 0, index, device)

    def read(self) -> tuple[int, int]:
        index, device = self._FORMAT.unpack_from(self._shared, 0)
        return index, device

    def count(self, device: int, valid_count: int, accepted_count: int) -> None:
        before = self.counts(device)
        at = self._FORMAT.size * (1 + device)
        after = before[0] + valid_count, before[1] + accepted_count
        self._FORMAT.pack_into(self._shared, at, *after)

    def counts(self, device: int) -> tuple[int, int]:
        given, accepted = self._FORMAT.unpack_from(self._shared, self._FORMAT.size * (1 + device))
        return given, accepted

    def close(self) -> None:
        self._shared.close()


def open_core(devices: Sequence[str]) -> aioinfer.Core:
    """Make the Core that these devices are fuzzed with."""
    core = aioinfer.Core()
    if any("OPENCL" in device for device in devices):
        from quick_builds import build_quickly

        build_quickly(core)
    return core


def run_batch(
    draw: Draw,
    indices: range,
    devices: Sequence[str],
    progress: Progress,
    say: int,
) -> None:
    """Run cases and write each finding as a line to the file descriptor ``say``."""
    _limit_memory()
    faulthandler.enable(all_threads=False)
    guarded = GuardedMemory()
    with open_core(devices) as core, asked_once() as forget_answers:
        for index in indices:
            forget_answers()
            case = draw(index)
            reference = None
            for number, device in enumerate(devices):
                progress.note(index, number)
                outcome = run_case(core, device, case, guarded, reference)
                progress.count(number, *_valid_runs(case, outcome))
                found = judge(case, device, outcome, reference)
                if outcome.cpu_s > _SLOW_S and not outcome.was_ended:
                    took = f"{outcome.cpu_s:.1f} s of processor time"
                    found.append(Finding("slow", device, f"slow {device} {case.ops}", took))
                for finding in found:
                    line = json.dumps({"index": index, **asdict(finding)}) + "\n"
                    os.write(say, line.encode())
                if device == "REFERENCE":
                    reference = outcome


def _valid_runs(case: Case, outcome: Outcome) -> tuple[int, int]:
    """Count the valid runs of a case, and those of them that have a result."""
    got = [outcome.of_run(number) for number, run in enumerate(case.runs) if run.is_valid]
    return len(got), sum(not isinstance(item, Failure) for item in got)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        return  # its shadow memory is larger than any bound; ASAN_OPTIONS has one of its own
    status = Path("/proc/self/status").read_text(encoding="ascii")
    data_kb = int(status.partition("VmData:")[2].split()[0])
    limit = (data_kb << 10) + _DATA_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def fork_worker(
    draw: Draw,
    indices: range,
    devices: Sequence[str],
    progress: Progress,
    errors: Path,
) -> tuple[int, int]:
    """Start a child; return its process id and the descriptor to read findings from."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    code = 1
    try:
        os.close(read)
        file = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, 2)
        os.dup2(file, 1)
        run_batch(draw, indices, devices, progress, write)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
