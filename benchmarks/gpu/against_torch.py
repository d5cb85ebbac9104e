"""What aioinfer reaches beside torch, from the rows that both have left: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from predictions import BATCHES
from rich.box import SIMPLE
from rich.table import Table

__all__ = ["Comparison", "comparisons", "table_of"]

TORCH_WAYS = ("eager", "compile", "compile max-autotune")
WANTED = {("resnet50", 1, "compile max-autotune"): 1.5}
"""By network, batch and torch's way: how many times as fast."""


@dataclass(frozen=True)
class Comparison:
    """One network and batch, in images or sequences a second, from device memory in float16."""

    network: str
    batch: int
    way: str
    own_per_s: float
    torch_per_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast as torch."""
        return self.own_per_s / self.torch_per_s

    @property
    def verdict(self) -> str:
        """Whether it is what is wanted; empty where nothing is."""
        wanted = WANTED.get((self.network, self.batch, self.way))
        if wanted is None:
            return ""
        return f"{'met' if self.ratio >= wanted else 'missed'}: {wanted} wanted"


def comparisons(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Comparison]:
    """Compare what there is of both; ``rows`` are those of each program by its name."""
    torch_rates = rates_of(rows.get("torch_baseline", ()))
    found = []
    for network in ("resnet50", "bert_base"):
        own_rates = rates_of(rows.get(network, ()))
        for batch in BATCHES:
            own = own_rates.get(f"batch {batch}, f16, device memory")
            for way in TORCH_WAYS:
                torch = torch_rates.get(f"{network}, {way}, batch {batch}")
                if own and torch:
                    found.append(Comparison(network, batch, way, own, torch))
    return found


def rates_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Give the rates by what they are of."""
    return {row["what"]: row["measured"] for row in rows if row["unit"] == "/s" and row["measured"]}


def table_of(found: Sequence[Comparison]) -> Table:
    """Put both beside each other."""
    table = Table(title="beside torch, a second, from device memory in float16", box=SIMPLE)
    for title in ("", "torch's way", "aioinfer", "torch", "times as fast", ""):
        table.add_column(title, justify="left" if title in ("", "torch's way") else "right")
    for one in found:
        table.add_row(
            f"{one.network}, batch {one.batch}",
            one.way,
            f"{one.own_per_s:,.0f}",
            f"{one.torch_per_s:,.0f}",
            f"{one.ratio:.2f}",
            one.verdict,
        )
    return table
