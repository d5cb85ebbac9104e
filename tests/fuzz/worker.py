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

from .bases import Base
from .drawing import draw_case
from .guarded import GuardedMemory
from .oracle import Finding, judge
from .running import run_case

__all__ = ["Progress", "fork_worker", "run_batch"]

_SLOW_S = 5.0
"""Processor time of one case on one device that is too much: the tensors are tiny."""
_DATA_BYTES = 3 << 30


class Progress:
    """What a child does just now, for its parent: index of the case, number of the device."""

    _FORMAT = struct.Struct("qq")

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)

    def note(self, index: int, device: int) -> None:
        self._FORMAT.pack_into(self._shared, 0, index, device)

    def read(self) -> tuple[int, int]:
        index, device = self._FORMAT.unpack_from(self._shared, 0)
        return index, device

    def close(self) -> None:
        self._shared.close()


def run_batch(
    bases: Sequence[Base],
    seed: int,
    indices: range,
    devices: Sequence[str],
    progress: Progress,
    say: int,
) -> None:
    """Run cases and write each finding as a line to the file descriptor ``say``."""
    _limit_memory()
    faulthandler.enable(all_threads=False)
    import aioinfer

    guarded = GuardedMemory()
    with aioinfer.Core() as core:
        if any("OPENCL" in device for device in devices):
            from .quick_builds import quick_opencl

            core.unregister_plugin("OPENCL")
            core.register_plugin("OPENCL", quick_opencl)
        for index in indices:
            case = draw_case(bases, seed, index)
            reference = None
            for number, device in enumerate(devices):
                progress.note(index, number)
                outcome = run_case(core, device, case, guarded, reference)
                found = judge(case, device, outcome, reference)
                if outcome.cpu_s > _SLOW_S and not outcome.was_ended:
                    ops = "+".join(case.op_types[:4])
                    took = f"{outcome.cpu_s:.1f} s of processor time"
                    found.append(Finding("slow", device, f"slow {device} {ops}", took))
                for finding in found:
                    line = json.dumps({"index": index, **asdict(finding)}) + "\n"
                    os.write(say, line.encode())
                if device == "REFERENCE":
                    reference = outcome


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        return  # its shadow memory is larger than any bound; ASAN_OPTIONS has one of its own
    status = Path("/proc/self/status").read_text(encoding="ascii")
    data_kb = int(status.partition("VmData:")[2].split()[0])
    limit = (data_kb << 10) + _DATA_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def fork_worker(
    bases: Sequence[Base],
    seed: int,
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
        run_batch(bases, seed, indices, devices, progress, write)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
