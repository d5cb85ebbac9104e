"""The rows that a benchmark on a GPU leaves: measured beside predicted and wanted, kept at once."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE
from rich.table import Table

__all__ = ["Report", "Row", "left_out", "number_text", "table_of", "versions"]

PACKAGES = (
    *("aioinfer", "cuda-bindings", "cupy-cuda12x", "cupy-cuda13x", "numpy", "nvidia-cublas"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "nvmath-python"),
    *("onnx", "onnxruntime", "torch", "triton", "uvloop"),
)
HIGHER_IS_BETTER = ("/s", "x", "%")
"""How units end of which more is better; of others, times, less is."""


@dataclass(frozen=True)
class Row:
    """One quantity: what was measured, what was computed before, what is wanted.

    ``measured`` is None where ``note`` says why there is nothing.
    """

    what: str
    unit: str
    measured: float | None
    predicted: float | None = None
    wanted: float | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        if self.measured is None or not self.predicted:
            return None
        return self.measured / self.predicted

    @property
    def is_met(self) -> bool | None:
        """True if it is at least as good as wanted; None where nothing is wanted."""
        if self.measured is None or self.wanted is None:
            return None
        if self.unit.endswith(HIGHER_IS_BETTER):
            return self.measured >= self.wanted
        return self.measured <= self.wanted


@dataclass
class Report:
    """The rows of one program, written to ``file`` with every row."""

    benchmark: str
    device: str
    file: Path | None = None
    rows: list[Row] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(
        self,
        what: str,
        measured: float | None,
        unit: str,
        predicted: float | None = None,
        wanted: float | None = None,
        note: str = "",
    ) -> None:
        """Note a quantity."""
        row = Row(what, unit, measured, predicted, wanted, note)
        self.rows.append(row)
        print(f"  {row.what}: {number_text(row.measured)} {row.unit} {row.note}".rstrip())
        self.save()

    def refuse(self, what: str, error: BaseException | str) -> None:
        """Note why something could not be measured."""
        lines = str(error).strip().splitlines() or [""]
        kind = "" if isinstance(error, str) else f"{type(error).__name__}: "
        self.add(what, None, "", note=f"{kind}{lines[0]}")

    @property
    def result(self) -> dict[str, Any]:
        """What is kept."""
        return {
            "date": datetime.date.today().isoformat(),
            "benchmark": f"gpu/{self.benchmark}",
            "device": self.device,
            "versions": versions(),
            "facts": self.facts,
            "rows": [asdict(row) for row in self.rows],
        }

    def save(self) -> None:
        """Write the file anew, at once or not at all."""
        if self.file is None:
            return
        half = self.file.with_suffix(".part")
        half.write_text(json.dumps(self.result, indent=1) + "\n", encoding="utf-8")
        os.replace(half, self.file)


def versions() -> dict[str, str]:
    """List the versions that a result depends on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def number_text(number: float | None) -> str:
    """Write a number with four digits. Pure."""
    if number is None:
        return "-"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def table_of(report: Report) -> Table:
    """Put measured beside predicted. Pure."""
    title = f"{report.benchmark} on {report.device}; predicted for an NVIDIA H200"
    table = Table(title=title, box=SIMPLE)
    table.add_column("", no_wrap=True)
    for title in ("unit", "predicted", "measured", "ratio", "wanted"):
        justify: Literal["left", "right"] = "left" if title == "unit" else "right"
        table.add_column(title, justify=justify, no_wrap=True)
    table.add_column("")
    for row in report.rows:
        if row.measured is None:
            continue
        verdict = {True: "met", False: "missed", None: ""}[row.is_met]
        table.add_row(
            row.what,
            row.unit,
            "" if row.predicted is None else number_text(row.predicted),
            number_text(row.measured),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            "" if row.wanted is None else number_text(row.wanted),
            " ".join(filter(None, (verdict, row.note))),
        )
    return table


def left_out(report: Report) -> list[str]:
    """Say what was not measured, and why. Pure."""
    return [f"not measured: {row.what}: {row.note}" for row in report.rows if row.measured is None]
