"""What a search for the best configuration tells: a table, lines to paste, a document."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pprint import pformat
from statistics import median
from typing import Any

from rich.console import Console

from ..console import print_indented, print_table
from ..output_errors import OutputError
from .placement import Placement
from .search import Choice, Settled, Slice

__all__ = ["Found", "TuneReport"]

Shapes = Mapping[str, tuple[int, ...]]


@dataclass
class Found:
    """One configuration with its slices, of which the last measurement's alone count."""

    label: str
    choice: Choice
    settled: Settled
    shapes: Shapes
    placement: Placement
    """What it is loaded on, and with."""
    slices: list[Slice] = field(default_factory=list)

    @property
    def typical(self) -> Slice:
        """The median of its slices, number by number."""
        return Slice(
            median(item.items_per_s for item in self.slices),
            median(item.median_ms for item in self.slices),
            median(item.p90_ms for item in self.slices),
        )

    def text(self) -> str:
        """Return what it is in a few words."""
        chosen = self.choice.config()
        words = [f"{key.removeprefix('INFERENCE_')}={value}" for key, value in chosen.items()]
        if self.choice.batch > 1:
            words.append(f"batch {self.choice.batch}")
        if self.choice.joined_rows > 1:
            words.append(f"BATCH of {self.choice.joined_rows} rows")
        return ", ".join([*words, f"{self.settled.requests} in flight"])


@dataclass
class TuneReport:
    """What is known so far. ``rows`` were measured in turn; the first is the default."""

    model: str
    device: str
    goal: str
    rows: list[Found] = field(default_factory=list)
    precisions: dict[str, list[OutputError]] = field(default_factory=dict)
    """What each precision changes in the outputs, against f32."""
    refused: dict[str, str] = field(default_factory=dict)
    tried_count: int = 0
    seconds: float = 0.0
    pins_shapes: bool = False
    are_precisions_asked: bool = False
    ended: str = ""
    """Why the search ended."""

    best: Found | None = None
    """The configuration to take, one of the rows; None while nothing is measured."""

    def document(self) -> dict[str, Any]:
        """Return the report as JSON knows it."""
        return {
            **self.chosen(),
            "goal": self.goal,
            "ended": self.ended,
            "seconds": round(self.seconds, 3),
            "tried": self.tried_count,
            "measured": [
                {
                    "label": row.label,
                    "is_best": row is self.best,
                    "device": row.placement.device,
                    "config": dict(row.placement.config),
                    "requests": row.settled.requests,
                    "batch": row.choice.batch,
                    "joined_rows": row.choice.joined_rows,
                    **asdict(row.typical),
                }
                for row in self.rows
                if row.slices
            ],
            "precisions": {
                name: [asdict(error) for error in errors]
                for name, errors in self.precisions.items()
            },
            "refused": self.refused,
        }

    def chosen(self) -> dict[str, Any]:
        """Return the configuration to take, for a file."""
        best = self.best
        if best is None:
            return {"model": self.model, "device": self.device, "config": None}
        return {
            "model": self.model,
            "device": best.placement.device,
            "config": dict(best.placement.config),
            "requests": best.settled.requests,
            "batch": best.choice.batch,
            "joined_rows": best.choice.joined_rows,
            "shapes": {name: list(shape) for name, shape in best.shapes.items()},
        }

    def print_on(self, console: Console) -> None:
        """Print the table, the precisions, and the lines to paste."""
        if self.best is None:
            console.print("Nothing was measured")
            return
        self._print_table(console)
        self._print_precisions(console)
        for what, why in self.refused.items():
            if what.startswith("precision ") and not self.are_precisions_asked:
                continue  # that a device has few is no news
            print_indented(console, f"not possible: {what}: {why}")
        console.print("To paste", style="bold")
        for line in self.python_lines():
            console.print(f"  {line}", soft_wrap=True)

    def python_lines(self) -> list[str]:
        """Write the best configuration as Python."""
        best, lines = self.best, [f"# aioinfer tune -m {shlex.quote(self.model)} -d {self.device}"]
        assert best is not None
        device, config = best.placement.device, dict(best.placement.config)
        lines += f"config = {pformat(config, width=80, sort_dicts=False)}".splitlines()
        source = repr(self.model)
        if self.pins_shapes:
            shapes = {name: tuple(shape) for name, shape in best.shapes.items()}
            lines += [f"model = core.read_model({source})"]
            lines += f"model.reshape({pformat(shapes, width=80)})".splitlines()
            source = "model"
        lines.append(f"network = core.load_network({source}, {device!r}, config)")
        count = best.settled.requests
        if best.choice.joined_rows > 1:
            lines.append(f"# have {count} tasks await network.infer at a time, of one row each")
        else:
            lines.append(f"# keep {count} {'request' if count == 1 else 'requests'} in flight")
        return lines

    def _print_table(self, console: Console) -> None:
        first = self.rows[0].typical
        rows = []
        for row in self.rows:
            if row.slices:
                found = row.typical
                rows.append(
                    (
                        f"{row.label} (take this)" if row is self.best else row.label,
                        row.text(),
                        f"{found.items_per_s:.1f}",
                        f"{found.items_per_s / first.items_per_s:.2f}x",
                        f"{found.median_ms:.2f}",
                        f"{found.p90_ms:.2f}",
                    )
                )
        print_table(
            console,
            f"{self.tried_count} configurations in {self.seconds:.0f} s ({self.ended}); "
            f"these took turns:",
            ["", "configuration", ">items/s", ">of default", ">median ms", ">p90 ms"],
            rows,
            fold=["configuration"],
        )

    def _print_precisions(self, console: Console) -> None:
        rows = [
            (name, error.output, f"{error.absolute:.3g}", f"{error.relative:.3g}")
            for name, errors in self.precisions.items()
            for error in errors
        ]
        if rows:
            print_table(
                console,
                "What a precision changes in the outputs, against f32, on random inputs",
                ["precision", "output", ">most", ">of the largest number"],
                rows,
                fold=["output"],
            )

    def json_text(self) -> str:
        """Write the document."""
        return json.dumps(self.document(), indent=2, default=str)
