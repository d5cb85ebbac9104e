"""What was measured, as lines of a table that a terminal of 100 columns shows whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.box import SIMPLE
from rich.table import Table

from against_peers.engines import ENGINES
from against_peers.judgement import Slot


@dataclass(frozen=True)
class Result:
    """A line of the table; numbers by engine, and the slots that they come from."""

    model: str
    precision: str
    quantity: str
    unit: str
    numbers: Mapping[str, float]
    ratio: float | None
    peer: str | None
    verdict: str
    noisy_count: int
    slots: Mapping[str, Sequence[Slot]] = field(repr=False)


def table_of(results: Sequence[Result]) -> Table:
    """Show the results in their order, under a heading for each model and precision."""
    table = Table(title="aioinfer and its peers (ratio above 1: aioinfer is better)", box=SIMPLE)
    names = [name for name in ENGINES if any(name in result.numbers for result in results)]
    table.add_column("", no_wrap=True)
    for title in ("unit", *names, "ratio", ""):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    table.add_column("noisy", justify="right")
    heading = ""
    for result in results:
        if heading != f"{result.model}, {result.precision}":
            heading = f"{result.model}, {result.precision}"
            table.add_row(heading, style="bold")
        table.add_row(
            f"  {result.quantity}",
            result.unit,
            *(number_text(result.numbers.get(name)) for name in names),
            "-" if result.ratio is None else f"{result.ratio:.2f}",
            result.verdict,
            noise_text(result),
        )
    return table


def noise_text(result: Result) -> str:
    slot_count = sum(len(taken) for taken in result.slots.values())
    return f"{result.noisy_count} of {slot_count}" if result.noisy_count else ""


def number_text(number: float | None) -> str:
    """Write a number with four significant digits, and a dash for none."""
    if number is None:
        return "-"
    return f"{number:#.4g}".rstrip(".") if number < 9999.5 else f"{number:.0f}"


def error_table(errors: Mapping[str, float], reference: str) -> Table:
    table = Table(title=f"largest difference from {reference}'s f32 over its largest value")
    table.box = SIMPLE
    table.add_column("model, precision, engine", no_wrap=True)
    table.add_column("error", justify="right")
    for key, error in errors.items():
        table.add_row(key, f"{error:.1e}")
    return table
