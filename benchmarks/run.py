"""Run the benchmarks one after the other and compare with the last results of the same machine.

    python benchmarks/run.py                 # all cases
    python benchmarks/run.py selection       # some of them
    python benchmarks/run.py --save          # and keep the results under benchmarks/results/

A case is a program (``programs.py``) that takes ``--json FILE`` and writes ``{"rows": [...]}``
there; in each row, numbers whose names end in ``_s``, ``_ms`` or ``_us`` are times, everything else
names the row.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from programs import FOLDER, find_programs
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

RESULTS = FOLDER / "results"
CASES = sorted(
    name for name, file in find_programs().items() if '"--json"' in file.read_text(encoding="utf-8")
)
PEERS = ("aioinfer", "numpy", "onednn-cpu-gomp", "onnx", "onnxruntime", "openvino", "uvloop")
TIMES = ("_s", "_ms", "_us")

Row = dict[str, Any]


def run_case(case: str) -> list[Row]:
    """Run one program; its own table goes to the terminal, its rows come back."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.json"
        command = [sys.executable, str(FOLDER), case, "--json", str(file)]
        subprocess.run(command, check=True)
        rows: list[Row] = json.loads(file.read_text(encoding="utf-8"))["rows"]
        return rows


def machine() -> str:
    """Name the machine by what decides its speed, without naming the machine itself."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = f"{len(names)} x {names[0]}" if names else model
    return f"{model}, {platform.system()}"


def versions() -> dict[str, str]:
    """List the versions that a result depends on."""
    found = {"python": platform.python_version()}
    for name in PEERS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def last_results(where: str) -> dict[str, list[Row]]:
    """Read the newest rows of each case that this machine has kept."""
    latest: dict[str, list[Row]] = {}
    for file in sorted(RESULTS.glob("*.json")):
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept.get("machine") == where:
            latest.update(kept["cases"])
    return latest


def is_time(key: str) -> bool:
    return key.endswith(TIMES)


def name_of(row: Row) -> str:
    words = (item for key, item in row.items() if isinstance(item, str) or key.endswith("_count"))
    return " ".join(map(str, words))


def comparison(case: str, rows: list[Row], before: list[Row]) -> Table:
    """Put each time beside its last value; above 1.0 means slower now."""
    old = {name_of(row): row for row in before}
    table = Table(title=f"{case}: against the last results of this machine", box=SIMPLE)
    for title in ("row", "time", "now", "before", "now/before"):
        table.add_column(title, justify="left" if title in ("row", "time") else "right")
    for row in rows:
        for key in filter(is_time, row):
            was = old.get(name_of(row), {}).get(key)
            ratio = f"{row[key] / was:.2f}" if was else "-"
            table.add_row(name_of(row), key, f"{row[key]:.4g}", f"{was or 0:.4g}", ratio)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks and compare with the last.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--save", action="store_true", help="keep the results in the repository")
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - set(CASES)
    if unknown:
        parser.error(f"unknown cases {sorted(unknown)}; there are {CASES}")
    where = machine()
    before = last_results(where)
    results = {case: run_case(case) for case in arguments.cases or CASES}
    console = Console()
    for case, rows in results.items():
        if case in before:
            console.print(comparison(case, rows, before[case]))
    if arguments.save:
        RESULTS.mkdir(exist_ok=True)
        today = datetime.date.today().isoformat()
        file = RESULTS / f"{today}-{'-'.join(results)}.json"
        kept = {"date": today, "machine": where, "versions": versions(), "cases": results}
        file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        console.print(f"kept in {file.relative_to(FOLDER.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
