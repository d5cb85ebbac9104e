"""What awaiting costs: a network of ONNXRUNTIME against run_in_executor over the same session.

A tiny perceptron (1x16 -> 32 -> 8), so that nearly all of the time is the way to the session and
back. Four ways in turn, round by round, so that other work on the machine falls on all alike:
``network.infer``, ``request.infer``, ``loop.run_in_executor`` with the loop's default threads, and
with one, as the network has one stream. Ratios are medians of the rounds' ratios.
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
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class Row:
    """Microseconds per request, and how often cheaper ours are than run_in_executor."""

    loop: str
    task_count: int
    network_us: float
    request_us: float
    executor_us: float
    pool_us: float
    session_us: float
    network_ratio: float
    request_ratio: float


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


async def rounds(
    network: aioinfer.ExecutableNetwork,
    session: onnxruntime.InferenceSession,
    task_count: int,
    request_count: int,
    round_count: int,
) -> dict[str, list[float]]:
    loop = asyncio.get_running_loop()
    given = {"x": np.ones((1, 16), np.float32)}
    names = [output.name for output in session.get_outputs()]
    requests = [network.create_infer_request() for _ in range(task_count)]
    times: dict[str, list[float]] = {"session": []}
    with ThreadPoolExecutor(max_workers=1) as pool:
        ways: dict[str, list[Call]] = {
            "network": [lambda: network.infer(given)] * task_count,
            "request": [lambda request=request: request.infer(given) for request in requests],
            "executor": [lambda: loop.run_in_executor(None, session.run, names, given)]
            * task_count,
            "pool": [lambda: loop.run_in_executor(pool, session.run, names, given)] * task_count,
        }
        for calls in ways.values():
            await time_us(calls, max(task_count, request_count // 10))
        for number in range(round_count):
            order = list(ways) if number % 2 else list(reversed(ways))
            for way in order:
                gc.collect()
                times.setdefault(way, []).append(await time_us(ways[way], request_count))
            began_s = time.perf_counter()
            for _ in range(request_count):
                session.run(names, given)
            times["session"].append((time.perf_counter() - began_s) / request_count * 1e6)
    return times


def measure(loop: str, task_count: int, request_count: int, round_count: int) -> Row:
    with (
        aioinfer.Core() as core,
        core.load_network(perceptron(), "ONNXRUNTIME", {"INFERENCE_NUM_THREADS": 1}) as network,
        asyncio.Runner(loop_factory=LOOPS[loop]) as runner,
    ):
        session = network.session  # type: ignore[attr-defined]
        times = runner.run(rounds(network, session, task_count, request_count, round_count))
    return Row(
        loop=loop,
        task_count=task_count,
        network_us=median(times["network"]),
        request_us=median(times["request"]),
        executor_us=median(times["executor"]),
        pool_us=median(times["pool"]),
        session_us=median(times["session"]),
        network_ratio=ratio(times["executor"], times["network"]),
        request_ratio=ratio(times["executor"], times["request"]),
    )


def ratio(theirs: list[float], ours: list[float]) -> float:
    return median(one / other for one, other in zip(theirs, ours, strict=True))


def table_of(rows: list[Row]) -> Table:
    table = Table(title="microseconds per request of a tiny perceptron", box=SIMPLE)
    table.add_column("loop")
    for title in (
        "tasks",
        "network.infer",
        "request.infer",
        "run_in_executor",
        "same, own pool",
        "session alone",
        "times cheaper",
    ):
        table.add_column(title, justify="right")
    for row in rows:
        times = (row.network_us, row.request_us, row.executor_us, row.pool_us, row.session_us)
        cheaper = f"{row.network_ratio:.2f} / {row.request_ratio:.2f}"
        texts = [f"{time_us:.1f}" for time_us in times]
        table.add_row(row.loop, str(row.task_count), *texts, cheaper)
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
        measure(loop, task_count, arguments.requests, arguments.rounds)
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
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
