"""What a request on a GPU costs the host: calls of the driver, calls of Python, and time.

    python benchmarks cuda_host
    python benchmarks cuda_host --json FILE      # and write the rows there
    python benchmarks cuda_host --tree OTHER     # in turns with another tree of this project

No GPU is needed: ``clocked_cupy.py`` stands in for CuPy, with driver calls of plausible length and
a GPU that takes 10 us a request. Calls are those of the median of many requests, on all threads;
those of Python are of aioinfer's functions. ``beside`` is how long a request of that network takes
while one of another network, 5 ms long, is always on the device. ``wall_8`` is the time from one
answer to the next with 8 requests in flight, and ``cpu_8`` the processor time of one, on all
threads, what the driver takes included. Figures are the best of the rounds, those that other
programs have disturbed least. Absolute ones say little: the machine has no GPU. Ratios to another
tree, in turns with it, say what has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
from networks.perceptron import INPUTS, perceptron
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

from accelerators.clocked_cupy import ClockedCupy

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
QUICK_US, LONG_US = 10.0, 5000.0
IN_FLIGHT = (1, 8, 32)
MOST_DRIVER_CALLS, MOST_PYTHON_CALLS = 8, 120
REQUESTS, COUNTED = 2000, 40
PAUSE_S = 0.003


def core_on(cupy: Any) -> Any:
    """Make a Core whose CUDA is on a driver that stands in."""
    import aioinfer
    from aioinfer.backends.cuda.cupy_driver import CupyDriver
    from aioinfer.backends.cuda.plugin import CudaPlugin

    core, driver = aioinfer.Core(), CupyDriver(cupy, frozenset)
    core.unregister_plugin("CUDA")
    core.register_plugin("CUDA", lambda handle, name: CudaPlugin(handle, name, driver))
    return core


async def counted(request: Any, inputs: Any, take: Callable[[], int]) -> int:
    """Return the calls of the median request, of those that follow others."""
    counts = []
    for _ in range(COUNTED):
        await request.infer(inputs)
        await asyncio.sleep(PAUSE_S)
        counts.append(take())
    return statistics.median_low(counts[COUNTED // 2 :])


def count_calls() -> Row:
    """Count the calls of a request, with a profiler on all threads, which are started by then."""
    from awaiting.call_count import profiled

    cupy = ClockedCupy()

    def driver_calls() -> int:
        count = cupy.counts.total()
        cupy.counts.clear()
        return count

    with profiled() as calls, core_on(cupy) as core:
        request = core.load_network(perceptron(), "CUDA").create_infer_request()
        python = asyncio.run(counted(request, INPUTS, lambda: calls.take().total()))
        driver = asyncio.run(counted(request, INPUTS, driver_calls))
    return {"driver_calls": driver, "python_calls": python}


async def times_us(network: Any, in_flight: int) -> tuple[float, float]:
    """Return the time between answers with requests in flight, and a request's processor time."""
    requests = [network.create_infer_request() for _ in range(in_flight)]

    async def work(request: Any, number: int) -> None:
        for _ in range(number):
            await request.infer(INPUTS)

    await asyncio.gather(*(work(request, 20) for request in requests))
    before, used = time.perf_counter(), time.process_time()
    number = max(1, REQUESTS // in_flight)
    await asyncio.gather(*(work(request, number) for request in requests))
    count = number * in_flight
    taken_s, used_s = time.perf_counter() - before, time.process_time() - used
    return taken_s / count * 1e6, used_s / count * 1e6


async def median_beside(quick: Any, long: Any) -> float:
    """Return how long a quick request takes beside a long one of another network, in ms."""
    taken: list[float] = []
    others = [] if long is None else [long.create_infer_request() for _ in range(2)]
    is_over = False

    async def stranger(request: Any) -> None:
        while not is_over:
            await request.infer(INPUTS)

    tasks = [asyncio.create_task(stranger(request)) for request in others]
    request = quick.create_infer_request()
    for _ in range(150):
        before = time.perf_counter()
        await request.infer(INPUTS)
        taken.append(time.perf_counter() - before)
        await asyncio.sleep(0.001)
    is_over = True
    await asyncio.gather(*tasks)
    return statistics.median(taken) * 1e3


def measure() -> Row:
    """Measure one tree: the one that this process has imported."""
    row, cupy = count_calls(), ClockedCupy()
    with core_on(cupy) as core, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        hint = {"PERFORMANCE_HINT": "THROUGHPUT"}
        cupy.graph_us = QUICK_US
        quick = core.load_network(perceptron(), "CUDA", hint)
        for in_flight in IN_FLIGHT:
            wall_us, cpu_us = runner.run(times_us(quick, in_flight))
            row |= {f"wall_{in_flight}_us": round(wall_us), f"cpu_{in_flight}_us": round(cpu_us)}
        row["alone_ms"] = round(runner.run(median_beside(quick, None)), 3)
        cupy.graph_us = LONG_US
        long = core.load_network(perceptron(), "CUDA", hint)
        row["beside_ms"] = round(runner.run(median_beside(quick, long)), 3)
    return row


def measure_apart(tree: Path) -> Row:
    """Measure a tree in a process of its own, with its own interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        python = tree / ".venv" / "bin" / "python"
        command = [python, tree / "benchmarks", "cuda_host", "--one", "--json", file]
        subprocess.run(list(map(str, command)), check=True)
        (row,) = json.loads(file.read_text(encoding="utf-8"))["rows"]
        return dict(row)


def best(rows: list[Row]) -> Row:
    """Take the best of each figure."""
    return {key: min(row[key] for row in rows) for key in rows[0]}


def table_of(rows: list[Row]) -> Table:
    """One column for each tree."""
    table = Table(title="A request on a GPU with a clock, on the host", box=SIMPLE)
    table.add_column("")
    for row in rows:
        table.add_column(row["tree"], justify="right")
    for key in rows[0]:
        if key != "tree":
            table.add_row(key, *(str(row[key]) for row in rows))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--tree", type=Path, help="another tree that has this file, and a .venv")
    parser.add_argument("--rounds", type=int, default=5, help="of each tree, in turns")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        rows = [measure()]
    else:
        trees = {"this": ROOT, "other": arguments.tree}
        found = {name: [] for name, tree in trees.items() if tree is not None}
        for _ in range(arguments.rounds):
            for name in found:
                found[name].append(measure_apart(trees[name].resolve()))
        rows = [{"tree": name, **best(measured)} for name, measured in found.items()]
        Console().print(table_of(rows))
    write_rows(arguments.json, "cuda_host", rows)
