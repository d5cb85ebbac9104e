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
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from against_torch import comparisons
from against_torch import table_of as table_beside_torch
from limited_runs import Outcome, chosen, run_in_turn, run_limited
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
    Case("kernel_times", 90),
    Case("async_requests", 90),
    Case("overlap", 60),
    Case("torch_baseline", 600),
)
"""By worth, but for what takes minutes to compile: that is last."""


def command_of(case: Case, file: Path, device: str, limit: float) -> list[str]:
    """Write the command line of a program. Pure."""
    program = str(FOLDER / f"{case.name}.py")
    seconds = f"{max(1.0, limit - GRACE_S):.0f}"
    options = ["--json", str(file), "--device", device, "--seconds", seconds]
    return [sys.executable, program, *options]


def rows_of(file: Path) -> list[dict[str, Any]]:
    """Read what a program has kept so far."""
    if not file.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def run_case(
    case: Case,
    left_s: float,
    device: str,
    folder: Path,
    keep: Callable[[str, Path], None],
    run: Callable[[Sequence[str], float], int | None] = run_limited,
) -> Outcome:
    """Run one program for its own time, or for what is left, and keep its rows however it ends."""
    limit = min(case.limit_s, left_s)
    print(f"\n{case.name}, for up to {limit:.0f} s", flush=True)
    file = folder / f"{case.name}.json"
    began_s = time.monotonic()
    status = run(command_of(case, file, device, limit), limit)
    took_s = time.monotonic() - began_s
    rows = rows_of(file)
    if rows:
        keep(case.name, file)
    if status is None:
        return Outcome(case.name, f"stopped after {limit:.0f} s", took_s, True)
    if status:
        return Outcome(case.name, f"failed with status {status}", took_s, True)
    if not rows:
        return Outcome(case.name, "found nothing to measure", took_s, True)
    return Outcome(case.name, "ended", took_s, False)


def keep_in(results: Path, today: str, name: str, file: Path) -> None:
    """Keep a program's rows in a folder, under the day's name."""
    results.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, results / f"{today}-gpu-{name}.json")


def table_of(outcomes: Sequence[Outcome], row_counts: Mapping[str, int]) -> Table:
    """Show how the programs ended, and how many rows each has left. Pure."""
    table = Table(title="benchmarks on a GPU", box=SIMPLE)
    for title in ("program", "outcome", "seconds", "rows"):
        table.add_column(title, justify="left" if title in ("program", "outcome") else "right")
    for one in outcomes:
        table.add_row(one.name, one.text, f"{one.took_s:.0f}", str(row_counts.get(one.name, 0)))
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


def main() -> int:
    arguments = parser().parse_args()
    until_s = time.monotonic() + arguments.minutes * 60
    try:
        cases = chosen(arguments.names, CASES)
    except ValueError as error:
        parser().error(str(error))
    reason = device_reason(arguments.device)
    if reason is not None and cupy_reason(arguments.device) is not None:
        print(f"benchmarks/gpu: nothing to measure here: {reason}")
        return 0
    today = datetime.date.today().isoformat()
    folders = [RESULTS] if arguments.save else []
    folders += [arguments.output_dir] if arguments.output_dir else []
    rows: dict[str, list[dict[str, Any]]] = {}

    def keep(name: str, file: Path) -> None:
        rows[name] = rows_of(file)
        for folder in folders:
            keep_in(folder, today, name, file)

    with tempfile.TemporaryDirectory() as work:

        def run(case: Case, left_s: float) -> Outcome:
            return run_case(case, left_s, arguments.device, Path(work), keep)

        outcomes = run_in_turn(cases, until_s, LEAST_S, run)
    console = Console(width=120)
    if found := comparisons(rows):
        console.print(table_beside_torch(found))
    console.print(table_of(outcomes, {name: len(kept) for name, kept in rows.items()}))
    return int(any(outcome.is_failure for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
