"""What turns say: figures for each engine, and ours beside the better peer's. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from against_peers.judgement import Slot, counted_slots, verdict

OURS = "aioinfer"
WANTED = 1.0  # the better peer's mean and p99 over ours, beside any neighbour
RUNS_FOR_P99 = 100  # with fewer it is the slowest of them

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Turn(Slot):
    """One engine's turn: ``value`` is its mean in milliseconds, ``times_ms`` has every run."""

    times_ms: Times = field(repr=False)
    image_rate: float | None = None
    """Images a second that decoders in the same process got through, where there are any."""


Turns = Mapping[tuple[str, str], Mapping[str, Sequence[Turn]]]
"""By model and situation, then by engine."""


@dataclass(frozen=True)
class Row:
    """Milliseconds of one engine in one situation; ``runs`` are those that count.

    Ratios are of the better peer's to ours, above 1 is better; a peer's row has none.
    """

    model: str
    situation: str
    engine: str
    mean_ms: float
    p50_ms: float
    p99_ms: float
    runs: int
    turns: int
    noisy_turns: int
    image_rate: float | None
    mean_ratio: float | None = None
    p99_ratio: float | None = None
    peers: Mapping[str, str] = field(default_factory=dict)
    """Which peer was better, by mean and by p99."""

    def flat(self) -> dict[str, Any]:
        """Return it as the runner of all benchmarks wants it."""
        return {key: value for key, value in asdict(self).items() if value not in (None, {})}


def percentile(times: Times, number: float) -> float:
    """Return the smallest time that a percentage of them do not exceed."""
    ordered = np.sort(times)
    return float(ordered[max(0, math.ceil(len(ordered) * number / 100) - 1)])


def rows_of(found: Turns) -> list[Row]:
    """Sum up the turns, a row for each engine in each situation."""
    return [row for key, by_engine in found.items() for row in rows_beside(*key, by_engine)]


def rows_beside(model: str, situation: str, turns: Mapping[str, Sequence[Turn]]) -> list[Row]:
    """Sum up the turns of all engines in one situation, and hold ours against the peers'."""
    plain = {
        engine: figures(model, situation, engine, taken) for engine, taken in turns.items() if taken
    }
    rows = []
    for engine, row in plain.items():
        if engine != OURS or len(plain) == 1:
            rows.append(row)
            continue
        others = {name: other for name, other in plain.items() if name != OURS}
        mean = verdict(row.mean_ms, {name: other.mean_ms for name, other in others.items()}, False)
        p99 = verdict(row.p99_ms, {name: other.p99_ms for name, other in others.items()}, False)
        assert mean is not None
        assert p99 is not None
        ratios = {"mean_ratio": mean.ratio, "p99_ratio": p99.ratio}
        peers = {"mean": mean.peer, "p99": p99.peer}
        rows.append(Row(**{**asdict(row), **ratios, "peers": peers}))
    return rows


def figures(model: str, situation: str, engine: str, turns: Sequence[Turn]) -> Row:
    """Sum up one engine's turns, of which noisy ones do not count while half are quiet."""
    counting = counted_slots(turns)
    times = np.concatenate([turn.times_ms for turn in counting])
    return Row(
        model=model,
        situation=situation,
        engine=engine,
        mean_ms=float(times.mean()),
        p50_ms=percentile(times, 50),
        p99_ms=percentile(times, 99),
        runs=len(times),
        turns=len(turns),
        noisy_turns=sum(turn.is_noisy for turn in turns),
        image_rate=mean_of([turn.image_rate for turn in counting]),
    )


def mean_of(rates: Sequence[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) / len(known) if known else None


def reached(rows: Sequence[Row], alone: Sequence[str]) -> tuple[int, int, int]:
    """Count what is judged, and how much of it is as wanted, by mean and by p99.

    Everything is judged but the situations in which a network is alone.
    """
    judged = [row for row in rows if row.mean_ratio is not None and row.situation not in alone]
    means = sum((row.mean_ratio or 0) >= WANTED for row in judged)
    p99s = sum((row.p99_ratio or 0) >= WANTED for row in judged)
    return len(judged), means, p99s
