"""Run the benchmarks on a GPU one after the other, each in a process of its own.

    python benchmarks/gpu/run.py                      # all of them
    python benchmarks/gpu/run.py resnet50 transfers   # some
    python benchmarks/gpu/run.py --minutes 9 --save   # what fits, and keep it

A program that fails or runs past its time is reported, and the others go on. ``--save`` keeps the
rows of each under benchmarks/results/, as ``<date>-gpu-<name>.json``, as soon as it has ended: what
it had measured when it was stopped, too. Without a device it says so, and has not failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from against_torch import comparisons
from against_torch import table_of as table_beside_torch
from measuring import cupy_reason, device_reason
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "results"
GRACE_S = 10.0
"""A program is told to leave out the rest so long before it is stopped."""
LEAST_S = 20.0
"""With less left no program is started."""


@dataclass(frozen=True)
class Case:
    """A program, and how long it may take at most."""

    name: str
    limit_s: float


CASES = (
    Case("device_facts", 60),
    Case("transfers", 60),
    Case("launch_cost", 60),
    Case("completion", 60),
    Case("graph_replay", 90),
    Case("resnet50", 240),
    Case("bert_base", 240),
    Case("async_requests", 90),
    Case("overlap", 60),
    Case("torch_baseline", 600),
)
"""By worth, but for what takes minutes to compile: that is last."""


@dataclass(frozen=True)
class Outcome:
    """How a program ended: ``text`` is "ended", or what went wrong."""

    name: str
    text: str
    took_s: float
    row_count: int
    is_failure: bool


def limit_s(case: Case, left_s: float) -> float | None:
    """Say how long a program may run, or None to leave it out for lack of time. Pure."""
    if left_s < LEAST_S:
        return None
    return min(case.limit_s, left_s)


def command_of(case: Case, file: Path, device: str, limit: float) -> list[str]:
    """Write the command line of a program. Pure."""
    program = str(FOLDER / f"{case.name}.py")
    seconds = f"{max(1.0, limit - GRACE_S):.0f}"
    options = ["--json", str(file), "--device", device, "--seconds", seconds]
    return [sys.executable, program, *options]


def run_limited(command: Sequence[str], limit: float) -> int | None:
    """Run a program and what it starts; its exit status, or None if it was stopped at the limit."""
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def rows_of(file: Path) -> list[dict[str, Any]]:
    """Read what a program has kept so far."""
    if not file.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def run_case(
    case: Case,
    limit: float,
    device: str,
    folder: Path,
    keep: Callable[[str, Path], None],
    run: Callable[[Sequence[str], float], int | None] = run_limited,
) -> Outcome:
    """Run one program and keep its rows, however it ends."""
    file = folder / f"{case.name}.json"
    began_s = time.monotonic()
    status = run(command_of(case, file, device, limit), limit)
    took_s = time.monotonic() - began_s
    rows = rows_of(file)
    if rows:
        keep(case.name, file)
    if status is None:
        return Outcome(case.name, f"stopped after {limit:.0f} s", took_s, len(rows), True)
    if status:
        return Outcome(case.name, f"failed with status {status}", took_s, len(rows), True)
    if not rows:
        return Outcome(case.name, "found nothing to measure", took_s, 0, True)
    return Outcome(case.name, "ended", took_s, len(rows), False)


def keep_in(results: Path, today: str, name: str, file: Path) -> None:
    """Keep a program's rows in a folder, under the day's name."""
    results.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, results / f"{today}-gpu-{name}.json")


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """Show how the programs ended. Pure."""
    table = Table(title="benchmarks on a GPU", box=SIMPLE)
    for title in ("program", "outcome", "seconds", "rows"):
        table.add_column(title, justify="left" if title in ("program", "outcome") else "right")
    for one in outcomes:
        table.add_row(one.name, one.text, f"{one.took_s:.0f}", str(one.row_count))
    return table


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = [case.name for case in CASES]
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    made.add_argument("--minutes", type=float, default=math.inf, help="for all together")
    made.add_argument("--device", default="CUDA", help="such as CUDA.1")
    made.add_argument("--save", action="store_true", help="keep the rows in the repository")
    made.add_argument("--output-dir", type=Path, metavar="DIR", help="keep the rows there, too")
    return made


def chosen(names: Sequence[str]) -> list[Case]:
    """Find programs by name, in their own order; raises ValueError for a name that is none."""
    unknown = set(names) - {case.name for case in CASES}
    if unknown:
        there = ", ".join(case.name for case in CASES)
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}; there are {there}")
    return [case for case in CASES if case.name in names or not names]


def main() -> int:
    arguments = parser().parse_args()
    until_s = time.monotonic() + arguments.minutes * 60
    try:
        cases = chosen(arguments.names)
    except ValueError as error:
        parser().error(str(error))
    reason = device_reason(arguments.device)
    if reason is not None and cupy_reason(arguments.device) is not None:
        print(f"benchmarks/gpu: nothing to measure here: {reason}")
        return 0
    today = datetime.date.today().isoformat()
    folders = [RESULTS] if arguments.save else []
    folders += [arguments.output_dir] if arguments.output_dir else []
    outcomes = []
    rows: dict[str, list[dict[str, Any]]] = {}

    def keep(name: str, file: Path) -> None:
        rows[name] = rows_of(file)
        for folder in folders:
            keep_in(folder, today, name, file)

    with tempfile.TemporaryDirectory() as work:
        for case in cases:
            limit = limit_s(case, until_s - time.monotonic())
            if limit is None:
                outcomes.append(Outcome(case.name, "left out: no time", 0.0, 0, False))
                continue
            print(f"\n{case.name}, for up to {limit:.0f} s", flush=True)
            outcomes.append(run_case(case, limit, arguments.device, Path(work), keep))
    console = Console(width=120)
    if found := comparisons(rows):
        console.print(table_beside_torch(found))
    console.print(table_of(outcomes))
    return int(any(outcome.is_failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
