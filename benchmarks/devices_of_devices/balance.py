"""Balance: a model cut over two halves of the CPU, beside the whole model on each half at once.

    python benchmarks balance
    python benchmarks balance --models resnet50 --rounds 3 --seconds 5

Two parts of the CPU, each with CPUs of its own, are two devices. ``sum`` is what both do at the
same time, each with the whole model for itself: no way to use the two can do more. ``pipeline`` is
HETERO:CPU.0,CPU.1 with PARTITION_POLICY=PIPELINE, by the times of nodes as a part of the CPU
measured them; ``estimated`` is the same without measured times. Networks are awaited on uvloop by
as many tasks as they say are best. The ways take turns; throughput is the median of the rounds,
``share`` that of the throughput over the sum of the same round. ``expected`` is what the bottleneck
of the cut allows, in requests a second.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import uvloop
from models import MODELS, Inputs
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

SUM, PIPELINE, ESTIMATED = "sum", "pipeline", "estimated"
PARTS = "HETERO:CPU.0,CPU.1"
WARM_UP = 0.3  # of a turn
WANTED_SHARE = 0.95
PROFILED_RUNS = 15


@dataclass(frozen=True)
class Row:
    """What one way made of a model, in requests a second; ``expected`` 0: nothing is."""

    model: str
    way: str
    tasks: int
    throughput: float
    share: float
    wanted_share: float | None
    expected: float


@dataclass(frozen=True)
class Way:
    """The networks that work at the same time, and what their cut is expected to do."""

    name: str
    networks: Sequence[aioinfer.ExecutableNetwork]
    expected: float = 0.0

    @property
    def task_counts(self) -> list[int]:
        key = "OPTIMAL_NUMBER_OF_INFER_REQUESTS"
        return [network.get_metric(key) for network in self.networks]


async def requests_per_s(way: Way, inputs: Inputs, seconds: float) -> float:
    """Await the networks for so long; the rate from the first end after the warm-up to the last.

    Each network for itself, so that no turn is cut off within a request; then their sum.
    """
    until_s = time.perf_counter() + seconds
    from_s = until_s - (1 - WARM_UP) * seconds

    async def work(request: aioinfer.InferRequest, ends_s: list[float]) -> None:
        while time.perf_counter() < until_s:
            await request.infer(inputs)
            ends_s.append(time.perf_counter())

    ends: list[list[float]] = [[] for _ in way.networks]
    await asyncio.gather(
        *(
            work(network.create_infer_request(), ends_s)
            for network, count, ends_s in zip(way.networks, way.task_counts, ends, strict=True)
            for _ in range(count)
        )
    )
    return sum(rate_of(ends_s, from_s, until_s) for ends_s in ends)


def rate_of(ends_s: Sequence[float], from_s: float, until_s: float) -> float:
    """Count ends within an interval over the time between the first and the last of them. Pure."""
    counted = sorted(end_s for end_s in ends_s if from_s <= end_s <= until_s)
    if len(counted) < 3:
        raise SystemExit("a turn has fewer than 3 requests after its warm-up; give more --seconds")
    return (len(counted) - 1) / (counted[-1] - counted[0])


def measured_times(core: aioinfer.Core, model: aioinfer.Model, inputs: Inputs) -> list[Any]:
    """Return the times of nodes on one part while the other one works, too, as in a pipeline."""
    config = {"PERF_COUNT": True}
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(
                core.load_network(model, f"CPU.{n}", {**config, "DEVICE_SHARE": f"{n}/2"})
            ).create_infer_request()
            for n in range(2)
        )
        times: list[Any] = []
        for number in range(PROFILED_RUNS):
            second.start_async(inputs)
            first.infer_sync(inputs)
            second.wait()
            if number:
                times += first.profiling()
    return times


def ways_of(
    core: aioinfer.Core, model: aioinfer.Model, inputs: Inputs, stack: ExitStack
) -> list[Way]:
    shares = [
        stack.enter_context(core.load_network(model, f"CPU.{n}", {"DEVICE_SHARE": f"{n}/2"}))
        for n in range(2)
    ]
    ways = [Way(SUM, shares)]
    policy = {"PARTITION_POLICY": "PIPELINE"}
    times = {"NODE_TIMES": {"CPU": measured_times(core, model, inputs)}}
    for name, config in ((PIPELINE, {**policy, **times}), (ESTIMATED, policy)):
        network = stack.enter_context(core.load_network(model, PARTS, config))
        expected = core.divide_network(model, PARTS, config).partition.expected
        ways.append(Way(name, [network], 1.0 / expected.outcome.bottleneck_s))
        print(f"{model.name}, {name}: {network.explain().splitlines()[1]}")
        print("\n".join(network.explain().splitlines()[2:4]))
    return ways


def measure(name: str, round_count: int, seconds: float) -> list[Row]:
    known = MODELS[name]
    inputs = known.inputs(np.random.default_rng(0), 1)
    with (
        aioinfer.Core() as core,
        ExitStack() as stack,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        model = core.read_model(known.build())
        ways = ways_of(core, model, inputs, stack)
        rounds: dict[str, list[float]] = {way.name: [] for way in ways}
        for number in range(round_count):
            for way in ways if number % 2 else reversed(ways):
                gc.collect()
                rounds[way.name].append(runner.run(requests_per_s(way, inputs, seconds)))
        counts = {way.name: sum(way.task_counts) for way in ways}
    shares = shares_of(rounds)
    return [
        Row(
            name,
            way.name,
            counts[way.name],
            median(rounds[way.name]),
            shares[way.name],
            WANTED_SHARE if way.name == PIPELINE else None,
            way.expected,
        )
        for way in ways
    ]


def shares_of(rounds: dict[str, list[float]]) -> dict[str, float]:
    """Give for each way the median over the rounds of its share of the round's sum. Pure."""
    return {
        name: median(rate / whole for rate, whole in zip(rates, rounds[SUM], strict=True))
        for name, rates in rounds.items()
    }


def table_of(rows: Sequence[Row]) -> Table:
    table = Table(title="two halves of the CPU: a pipeline, and the sum of both", box=SIMPLE)
    for title in ("model", "way"):
        table.add_column(title, no_wrap=True)
    for title in ("tasks", "requests/s", "of the sum", "wanted", "expected"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        wanted = "" if row.wanted_share is None else f">= {row.wanted_share:.2f}"
        expected = f"{row.expected:.1f}" if row.expected else ""
        table.add_row(
            row.model,
            row.way,
            str(row.tasks),
            f"{row.throughput:.2f}",
            f"{row.share:.3f}",
            wanted,
            expected,
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--models", nargs="+", choices=sorted(MODELS), default=["resnet50", "bert_base"]
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds takes a number from 1 on, --seconds one above 0")
    rows: list[Row] = []
    for name in arguments.models:
        rows += measure(name, arguments.rounds, arguments.seconds)
    Console().print(table_of(rows))
    write_rows(
        arguments.json,
        "balance",
        [asdict(row) for row in rows],
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )
