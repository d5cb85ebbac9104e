"""What the benchmarks on a GPU share: the device, or why it is not there, and turns.

A program calls ``run_benchmark(name, measure)``; its ``measure(report, settings)`` adds rows as it
goes. Each row is kept in the file of ``--json`` at once, so that what was measured stays when a
program is stopped at its limit of time.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

_NETWORKS = str(Path(__file__).resolve().parent.parent)
if _NETWORKS not in sys.path:
    sys.path.append(_NETWORKS)

from reporting import Report, left_out, table_of  # noqa: E402
from rich.console import Console  # noqa: E402

import aioinfer  # noqa: E402
from aioinfer.errors import AioInferError, DeviceError  # noqa: E402
from aioinfer.runtime.devices.device_name import parse_device  # noqa: E402

__all__ = [
    "FindReason",
    "Measure",
    "Settings",
    "cupy_reason",
    "device_reason",
    "interleaved",
    "percentile",
    "rotated",
    "run_benchmark",
    "set_count",
]

LARGEST_CACHE_BYTES = 64 << 20
MOST_SETS = 64

T = TypeVar("T")
Run = Callable[[int], Any]
"""Does something a number of times, and returns when it is done."""


@dataclass(frozen=True)
class Settings:
    """How long to measure. ``until_s`` is the ``time.monotonic`` at which a program should end."""

    device: str
    rounds: int
    round_s: float
    until_s: float

    def has_time(self, needed_s: float = 0.0) -> bool:
        """Say whether that number of seconds is left."""
        return time.monotonic() + needed_s < self.until_s


Measure = Callable[[Report, Settings], None]
FindReason = Callable[[str], str | None]


def device_reason(device: str) -> str | None:
    """Say why aioinfer has no such device here, or None."""
    with aioinfer.Core() as core:
        try:
            core.resolve_device(device)
        except DeviceError as error:
            return str(error)
    return None


def cupy_reason(device: str) -> str | None:
    """Say why CuPy cannot use such a device here, or None; it is CuPy's current one from then on.

    Asks no plugin of aioinfer: raw costs can be measured without one.
    """
    try:
        import cupy
    except ImportError as error:
        return f"CuPy cannot be imported: {error}"
    if not cupy.cuda.is_available():
        return "CuPy sees no CUDA device"
    index, count = int(parse_device(device).id or 0), cupy.cuda.runtime.getDeviceCount()
    if index >= count:
        return f"CuPy sees {count} CUDA devices, and {device} is not one of them"
    cupy.cuda.Device(index).use()
    return None


def device_name(device: str) -> str:
    """Name the GPU in the words of its driver."""
    try:
        with aioinfer.Core() as core:
            return str(core.get_metric(device, "FULL_DEVICE_NAME"))
    except AioInferError:
        pass
    try:
        import cupy

        index = cupy.cuda.runtime.getDevice()
        return str(cupy.cuda.runtime.getDeviceProperties(index)["name"].decode())
    except ImportError:
        return device


def interleaved(ways: Mapping[str, Run], rounds: int, round_s: float) -> dict[str, float]:
    """Let ways take turns, ``rounds`` times each for about ``round_s``.

    Gives the median over the rounds of the microseconds for one. A way runs a few times before.
    """
    counts = {}
    for name, run in ways.items():
        run(3)
        began_s = time.perf_counter()
        run(3)
        one_s = max((time.perf_counter() - began_s) / 3, 1e-9)
        counts[name] = max(1, round(round_s / one_s))
    times_us: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        gc.collect()
        for name in list(ways) if number % 2 else reversed(ways):
            began_s = time.perf_counter()
            ways[name](counts[name])
            times_us[name].append((time.perf_counter() - began_s) / counts[name] * 1e6)
    return {name: median(taken) for name, taken in times_us.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """Give the smallest value that so large a share of all does not exceed. Pure."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def set_count(size_bytes: int) -> int:
    """Say how many sets of inputs to take in turn so that no cache holds them all. Pure."""
    return max(2, min(MOST_SETS, -(-2 * LARGEST_CACHE_BYTES // max(1, size_bytes))))


def rotated(sets: Sequence[T]) -> Iterator[T]:
    """Give one set of inputs after the other, for ever."""
    return itertools.cycle(sets)


def run_benchmark(
    benchmark: str, measure: Measure, text: str | None, find_reason: FindReason = device_reason
) -> None:
    """Run a program: read its arguments, find the device or stop, measure, print the table.

    ``find_reason`` says why a device is not there for what the program measures: a failure where
    AIOINFER_REQUIRE_DEVICE says that it should be.
    """
    parser = argparse.ArgumentParser(description=text.splitlines()[0] if text else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--device", default="CUDA", help="such as CUDA.1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-ms", type=float, default=100.0, help="of each way")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="when to leave out the rest"
    )
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.round_ms <= 0:
        parser.error("--rounds takes numbers from 1 on, --round-ms what is above 0")
    reason = find_reason(arguments.device)
    if reason is not None:
        print(f"{benchmark}: nothing to measure here: {reason}")
        sys.exit(int(os.environ.get("AIOINFER_REQUIRE_DEVICE", "0") not in ("", "0")))
    report = Report(benchmark, device_name(arguments.device), arguments.json)
    until_s = time.monotonic() + arguments.seconds
    settings = Settings(arguments.device, arguments.rounds, arguments.round_ms / 1e3, until_s)
    try:
        measure(report, settings)
    finally:
        report.save()
        Console(width=120).print(table_of(report), *left_out(report), sep="\n", markup=False)
    if all(row.measured is None for row in report.rows):
        sys.exit(f"{benchmark}: nothing could be measured; the rows above say why")
