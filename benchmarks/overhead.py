"""What awaiting costs: a network of ONNXRUNTIME against run_in_executor over the same session.

A tiny perceptron (1x16 -> 32 -> 8), so that nearly all of the time is the way to the session and
back. The ways take turns, round by round, so that other work on the machine falls on all alike:
``network.infer`` and ``request.infer`` as they come (short runs stay on the loop's thread) and with
INLINE_THRESHOLD_US=0 (each run goes to a worker), ``loop.run_in_executor`` with the loop's default
threads, and with one, as the network has one stream. Ratios are medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import onnxruntime
import uvloop
from onnx import helper, numpy_helper
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import aioinfer

TARGET = 2.5  # times cheaper than run_in_executor, at 64 tasks

Call = Callable[[], Awaitable[object]]
MakeLoop = Callable[[], asyncio.AbstractEventLoop]

LOOPS: dict[str, MakeLoop] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


WAYS = {
    "network": "network.infer",
    "request": "request.infer",
    "network_hop": "network.infer, by a worker",
    "request_hop": "request.infer, by a worker",
    "executor": "run_in_executor",
    "pool": "run_in_executor, one thread",
    "session": "the session alone",
}
OURS = ("network", "request", "network_hop", "request_hop")


@dataclass(frozen=True)
class Row:
    """Microseconds per request, and how many times cheaper ours are than run_in_executor.

    With one task the time per request is its latency, and ``p50`` holds the median ones.
    """

    loop: str
    task_count: int
    us: dict[str, float]
    ratios: dict[str, float]
    p50_us: dict[str, float]

    def flat(self) -> dict[str, object]:
        """Return it as the runner of all benchmarks wants it."""
        named = {"us": self.us, "ratio": self.ratios, "p50_us": self.p50_us}
        numbers = {f"{way}_{unit}": of[way] for unit, of in named.items() for way in of}
        return {"loop": self.loop, "task_count": self.task_count, **numbers}


def perceptron(seed: int = 0) -> onnx.ModelProto:
    chance = np.random.default_rng(seed)
    weights = {
        name: chance.standard_normal(shape).astype(np.float32)
        for name, shape in {"w1": (16, 32), "b1": (32,), "w2": (32, 8), "b2": (8,)}.items()
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], "fc1"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"], "fc2"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 16])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "perceptron", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


async def time_us(calls: list[Call], request_count: int) -> float:
    """Keep all calls busy until so many requests are through; microseconds for each."""
    left = request_count

    async def work(call: Call) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    began_s = time.perf_counter()
    await asyncio.gather(*(work(call) for call in calls))
    return (time.perf_counter() - began_s) / request_count * 1e6


async def p50_us(call: Call, request_count: int) -> float:
    """Time requests one by one; the median in microseconds."""
    times_ns = []
    for _ in range(request_count):
        began_ns = time.perf_counter_ns()
        await call()
        times_ns.append(time.perf_counter_ns() - began_ns)
    return median(times_ns) / 1e3


@dataclass(frozen=True)
class Setting:
    """How much is measured."""

    task_count: int
    request_count: int
    round_count: int


def ways_of(
    networks: dict[str, aioinfer.ExecutableNetwork], pool: ThreadPoolExecutor, task_count: int
) -> dict[str, list[Call]]:
    """List each way's calls, one for each task."""
    loop = asyncio.get_running_loop()
    given = {"x": np.ones((1, 16), np.float32)}
    session = networks[""].session  # type: ignore[attr-defined]
    ways: dict[str, list[Call]] = {}
    for suffix, network in networks.items():
        requests = [network.create_infer_request() for _ in range(task_count)]
        ways["network" + suffix] = [partial(network.infer, given)] * task_count
        ways["request" + suffix] = [partial(request.infer, given) for request in requests]
    for way, threads in (("executor", None), ("pool", pool)):
        call = partial(loop.run_in_executor, threads, session.run, ["y"], given)
        ways[way] = [call] * task_count
    return ways


async def rounds(
    networks: dict[str, aioinfer.ExecutableNetwork], setting: Setting
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Measure each way in each round; and once the latencies, if there is one task."""
    count, tasks = setting.request_count, setting.task_count
    given = {"x": np.ones((1, 16), np.float32)}
    run = networks[""].session.run  # type: ignore[attr-defined]
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    latencies: dict[str, list[float]] = {way: [] for way in WAYS if way != "session"}
    with ThreadPoolExecutor(max_workers=1) as pool:
        ways = ways_of(networks, pool, tasks)
        for calls in ways.values():
            await time_us(calls, max(tasks, count // 10))
        for number in range(setting.round_count):
            for way in list(ways) if number % 2 else reversed(ways):
                gc.collect()
                times[way].append(await time_us(ways[way], count))
                if tasks == 1:
                    latencies[way].append(await p50_us(ways[way][0], count // 4 or 1))
            began_s = time.perf_counter()
            for _ in range(count):
                run(["y"], given)
            times["session"].append((time.perf_counter() - began_s) / count * 1e6)
    return times, {way: median(found) for way, found in latencies.items() if found}


def measure(loop: str, setting: Setting) -> Row:
    config = {"INFERENCE_NUM_THREADS": 1}
    with (
        aioinfer.Core() as core,
        core.load_network(perceptron(), "ONNXRUNTIME", config) as network,
        core.load_network(
            perceptron(), "ONNXRUNTIME", {**config, "INLINE_THRESHOLD_US": 0}
        ) as hopping,
        asyncio.Runner(loop_factory=LOOPS[loop]) as runner,
    ):
        times, latencies = runner.run(rounds({"": network, "_hop": hopping}, setting))
    return Row(
        loop=loop,
        task_count=setting.task_count,
        us={way: median(found) for way, found in times.items()},
        ratios={way: ratio(times["executor"], times[way]) for way in OURS},
        p50_us=latencies,
    )


def ratio(theirs: list[float], ours: list[float]) -> float:
    return median(one / other for one, other in zip(theirs, ours, strict=True))


def table_of(rows: list[Row]) -> Table:
    """One column for each loop and number of tasks, so that it fits 80 columns."""
    table = Table(title="microseconds per request of a tiny perceptron", box=SIMPLE)
    table.add_column("")
    for row in rows:
        tasks = "1 task" if row.task_count == 1 else f"{row.task_count} tasks"
        table.add_column(f"{row.loop}\n{tasks}", justify="right")
    for way, title in WAYS.items():
        table.add_row(title, *(f"{row.us[way]:.1f}" for row in rows))
    table.add_section()
    table.add_row("times cheaper than run_in_executor")
    for way in OURS:
        table.add_row(f"  {WAYS[way]}", *(f"{row.ratios[way]:.2f}" for row in rows))
    table.add_section()
    table.add_row("median latency of one")
    for way in ("network", "request", "network_hop", "executor"):
        texts = (f"{row.p50_us[way]:.1f}" if row.p50_us else "" for row in rows)
        table.add_row(f"  {WAYS[way]}", *texts)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 64], metavar="COUNT")
    parser.add_argument("--requests", type=int, default=4000, help="of each way in each round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if min(*arguments.tasks, arguments.requests, arguments.rounds) < 1:
        parser.error("--tasks, --requests and --rounds take numbers from 1 on")
    rows = [
        measure(loop, Setting(task_count, arguments.requests, arguments.rounds))
        for loop in LOOPS
        for task_count in arguments.tasks
    ]
    console = Console()
    console.print(table_of(rows))
    console.print(f"wanted at 64 tasks: {TARGET} times cheaper than run_in_executor")
    if arguments.json is not None:
        result = {
            "benchmark": "overhead",
            "python": platform.python_version(),
            "onnxruntime": onnxruntime.__version__,
            "requests": arguments.requests,
            "rounds": arguments.rounds,
            "rows": [row.flat() for row in rows],
        }
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
