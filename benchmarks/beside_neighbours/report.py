"""Latencies beside neighbours, as a table that a terminal of 100 columns shows whole."""

from __future__ import annotations

from collections.abc import Sequence

from against_peers.engines import ENGINES
from against_peers.judgement import TIE
from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from beside_neighbours.judgement import RUNS_FOR_P99, WANTED, Row, reached
from beside_neighbours.situations import SITUATIONS

ALONE = tuple(name for name, situation in SITUATIONS.items() if situation.is_alone)
WIDTH = 100  # of the table where the output is no terminal
MICROSECONDS_BELOW_MS = 0.1


def table_of(rows: Sequence[Row]) -> Table:
    """Show the rows in their order, a line for each situation, under a heading for each model."""
    table = Table(title="latency beside neighbours: mean, median, p99", box=SIMPLE)
    table.padding = (0, 1, 0, 0)
    engines = [name for name in ENGINES if any(row.engine == name for row in rows)]
    table.add_column("", no_wrap=True)
    for title in (*engines, "mean", "p99", "noisy"):
        table.add_column(title, justify="right", no_wrap=True)
    heading = ""
    for model, situation in dict.fromkeys((row.model, row.situation) for row in rows):
        of_model = [row for row in rows if row.model == model]
        unit = unit_of(of_model)
        if heading != model:
            heading = model
            table.add_row(f"{model}, {unit}", style="bold")
        beside = {row.engine: row for row in of_model if row.situation == situation}
        ratios = [(row.mean_ratio, row.p99_ratio) for row in beside.values() if row.peers]
        mean, p99 = ratios[0] if ratios else (None, None)
        noisy = sum(row.noisy_turns for row in beside.values())
        table.add_row(
            f"  {SITUATIONS[situation].title}",
            *(latency_text(beside.get(engine), unit) for engine in engines),
            ratio_text(mean, situation in ALONE),
            ratio_text(p99, situation in ALONE),
            f"{noisy}/{sum(row.turns for row in beside.values())}" if noisy else "",
        )
    return table


def unit_of(rows: Sequence[Row]) -> str:
    return "us" if min(row.p50_ms for row in rows) < MICROSECONDS_BELOW_MS else "ms"


def latency_text(row: Row | None, unit: str) -> str:
    """Write mean, median and p99; a p99 of too few runs has a tilde."""
    if row is None:
        return "-"
    scale = 1000 if unit == "us" else 1
    mean, p50, p99 = (number_text(scale * ms) for ms in (row.mean_ms, row.p50_ms, row.p99_ms))
    return f"{mean} {p50} {'~' if row.runs < RUNS_FOR_P99 else ''}{p99}"


def number_text(number: float) -> str:
    """Write a number with three significant digits."""
    return f"{number:#.3g}".rstrip(".") if number < 999.5 else f"{number:.0f}"


def ratio_text(ratio: float | None, is_alone: bool) -> Text:
    """Write a ratio, red if it is below what is wanted, yellow if only by as much as chance."""
    if ratio is None:
        return Text("-")
    short = "yellow" if ratio >= WANTED - TIE else "red"
    text = f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.0f}"
    return Text(text, "" if is_alone else "green" if ratio >= WANTED else short)


def summary(rows: Sequence[Row]) -> str:
    judged, means, p99s = reached(rows, ALONE)
    return (
        f"mean, p99: the better peer's over ours, above 1 is better, alone included; a ~p99 is the "
        f"slowest of fewer than {RUNS_FOR_P99} runs\n"
        f"wanted beside a neighbour: at least {WANTED:.2f}; "
        f"by mean {means} of {judged} reach it, by p99 {p99s} of {judged}"
    )
