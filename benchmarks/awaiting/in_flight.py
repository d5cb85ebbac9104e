"""How many requests in flight keep a device busy: throughput by their number.

    python benchmarks in_flight --devices CPU --widths 256

A perceptron of three square layers, for runs of tens of microseconds to milliseconds, is loaded
with each PERFORMANCE_HINT. Tasks await it at once: as many as there are streams, one more, twice as
many (what OPTIMAL_NUMBER_OF_INFER_REQUESTS says), and four times as many, of which the last wait in
the network's queue. No run stays on the loop's thread. The counts take turns; numbers are medians
of the rounds, shares are of the best count in the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import uvloop
from onnx import helper, numpy_helper
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

HINTS = ("LATENCY", "THROUGHPUT")
LAYERS, BATCH = 3, 16
WARM_UP = 0.3  # of a turn


@dataclass(frozen=True)
class Row:
    """Throughput, in requests/s, with a number of tasks.

    ``share`` is of what the best number of tasks reached.
    """

    device: str
    hint: str
    model: str
    task_count: int
    streams: int
    optimal: int
    throughput: float
    share: float


def perceptron(width: int) -> onnx.ModelProto:
    chance = np.random.default_rng(0)
    nodes, tensors = [], []
    for layer in range(LAYERS):
        weights = (chance.standard_normal((width, width)) / width**0.5).astype(np.float32)
        tensors.append(numpy_helper.from_array(weights, f"w{layer}"))
        nodes += [
            helper.make_node(
                "MatMul", [f"x{layer}", f"w{layer}"], [f"h{layer}"], f"product{layer}"
            ),
            helper.make_node("Relu", [f"h{layer}"], [f"x{layer + 1}"], f"relu{layer}"),
        ]
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [BATCH, width])
        for name in ("x0", f"x{LAYERS}")
    )
    graph = helper.make_graph(nodes, f"perceptron{width}", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def task_counts(streams: int) -> list[int]:
    """List how many tasks are tried, ascending. Pure."""
    return sorted({streams, streams + 1, 2 * streams, 4 * streams})


async def requests_per_s(
    network: aioinfer.ExecutableNetwork, width: int, task_count: int, seconds: float
) -> float:
    """Await the network in a number of tasks for some seconds; the rate after the warm-up."""
    inputs = {"x0": np.ones((BATCH, width), np.float32)}
    ends_s: list[float] = []
    began_s = time.perf_counter()
    from_s, until_s = began_s + WARM_UP * seconds, began_s + seconds

    async def work(request: aioinfer.InferRequest) -> None:
        while time.perf_counter() < until_s:
            await request.infer(inputs)
            ends_s.append(time.perf_counter())

    await asyncio.gather(*(work(network.create_infer_request()) for _ in range(task_count)))
    counted = [end_s for end_s in ends_s if from_s <= end_s <= until_s]
    return len(counted) / (until_s - from_s)


def shares_of(rounds: dict[int, list[float]]) -> dict[int, float]:
    """Give for each count the median over the rounds of its share of the round's best. Pure."""
    best = [max(numbers) for numbers in zip(*rounds.values(), strict=True)]
    return {
        count: median(number / most for number, most in zip(numbers, best, strict=True))
        for count, numbers in rounds.items()
    }


def measure(device: str, hint: str, width: int, round_count: int, seconds: float) -> list[Row]:
    config = {"PERFORMANCE_HINT": hint, "INLINE_THRESHOLD_US": 0}
    with (
        aioinfer.Core() as core,
        core.load_network(perceptron(width), device, config) as network,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        optimal = network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        streams = max(1, optimal // 2)
        rounds: dict[int, list[float]] = {count: [] for count in task_counts(streams)}
        turn = partial(requests_per_s, network, width, seconds=seconds)
        runner.run(turn(task_count=optimal))
        for number in range(round_count):
            for count in list(rounds) if number % 2 else reversed(rounds):
                gc.collect()
                rounds[count].append(runner.run(turn(task_count=count)))
    shares = shares_of(rounds)
    return [
        Row(device, hint, f"width {width}", count, streams, optimal, rate, shares[count])
        for count, rate in ((count, median(rates)) for count, rates in rounds.items())
    ]


def table_of(rows: list[Row]) -> Table:
    table = Table(title="throughput by the number of requests in flight", box=SIMPLE)
    table.add_column("device, hint, model", no_wrap=True)
    for title in ("tasks", "requests/s", "of the best"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(
            f"{row.device} {row.hint} {row.model}",
            str(row.task_count),
            f"{row.throughput:.0f}",
            f"{row.share:.2f}",
            "optimal" if row.task_count == row.optimal else "",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--devices", nargs="+", default=["CPU", "ONNXRUNTIME", "REFERENCE"])
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if min(arguments.rounds, *arguments.widths) < 1 or arguments.seconds <= 0:
        parser.error("--rounds and --widths take numbers from 1 on, --seconds numbers above 0")
    rows: list[Row] = []
    for device in arguments.devices:
        for hint in HINTS:
            for width in arguments.widths:
                rows += measure(device, hint, width, arguments.rounds, arguments.seconds)
    Console().print(table_of(rows))
    write_rows(
        arguments.json,
        "in_flight",
        [asdict(row) for row in rows],
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )
