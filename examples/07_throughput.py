"""Find the setting that answers the most requests a second, and see where their time goes.

Every setting is loaded, warmed up and kept busy with as many requests as it asks for; a table shows
the rate and what that costs a single request. The trace of the best one is saved as a page: a row
for each stream, a bar for each stage of each request.

    python examples/07_throughput.py --seconds 2 --trace throughput.html
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import aioinfer
from pictures.mobilenet import SIZE, mobilenet_v2

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "one request after the other": {"PERFORMANCE_HINT": "LATENCY"},
    "one stream": {"NUM_STREAMS": 1},
    "throughput": {"PERFORMANCE_HINT": "THROUGHPUT"},
    "throughput, batches of 4": {"PERFORMANCE_HINT": "THROUGHPUT"},
}
BATCHED = {"throughput, batches of 4": 4}
SEQUENTIAL = ("one request after the other",)


@dataclass(frozen=True)
class Measured:
    """One row of the table; durations are of single requests, in milliseconds."""

    setting: str
    in_flight: int
    pictures_per_s: float
    median_ms: float
    slow_ms: float
    trace: Any


async def measure(core: aioinfer.Core, setting: str, device: str, seconds: float) -> Measured:
    """Keep a network busy for this long."""
    batch = BATCHED.get(setting, 1)
    model = core.read_model(mobilenet_v2())
    model.reshape({"image": (batch, 3, SIZE, SIZE)})
    image = np.random.default_rng(0).standard_normal((batch, 3, SIZE, SIZE), np.float32)
    latencies_s: list[float] = []
    async with await core.load_network_async(model, device, SETTINGS[setting]) as network:
        await network.warm_up_async()
        in_flight = network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        in_flight = 1 if setting in SEQUENTIAL else in_flight
        began = time.perf_counter()

        async def work() -> None:
            request = network.create_infer_request()
            while time.perf_counter() - began < seconds:
                await request.infer({"image": image})
                latencies_s.append(request.latency_s)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(in_flight):
                tasks.create_task(work())
        rate = batch * len(latencies_s) / (time.perf_counter() - began)
        median_s, slow_s = np.percentile(latencies_s, (50, 99))
        trace = network.trace()
    return Measured(setting, in_flight, rate, median_s * 1e3, slow_s * 1e3, trace)


def table_of(rows: list[Measured], best: Measured) -> Table:
    table = Table(title="MobileNetV2", title_justify="left", box=SIMPLE)
    table.add_column("setting")
    for heading in ("in flight", "pictures/s", "median", "99 % within"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.setting,
            str(row.in_flight),
            f"{row.pictures_per_s:.0f}",
            f"{row.median_ms:.1f} ms",
            f"{row.slow_ms:.1f} ms",
            style="bold" if row is best else None,
        )
    return table


async def main() -> int:
    parser = argparse.ArgumentParser(description="Compare settings by their throughput.")
    parser.add_argument("--device", default="AUTO")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each setting")
    parser.add_argument("--trace", type=Path, default=Path("throughput.html"))
    options = parser.parse_args()
    options.trace.parent.mkdir(parents=True, exist_ok=True)
    console, rows = Console(), list[Measured]()
    async with aioinfer.Core() as core:
        for setting in SETTINGS:
            rows.append(await measure(core, setting, options.device, options.seconds))
    best = max(rows, key=lambda row: row.pictures_per_s)
    console.print(table_of(rows, best))
    await best.trace.save_async(options.trace)
    console.print(f"{options.trace} shows where the time of {best.setting!r} went")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
