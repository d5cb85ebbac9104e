"""Pictures a second from JPEG bytes over HTTP, beside the same service on two other engines.

    python benchmarks image_service
    python benchmarks image_service --clients 32 --rounds 3 --seconds 2 --hint LATENCY

The service is examples/05_image_service: one process on uvicorn and uvloop, MobileNetV2 on two
CPUs, pictures of 640 x 480. Each engine has a process of its own, which sleeps while another one
has its turn; the order within each round is drawn. The clients are in this process and share the
CPUs. ``ratio`` is our rate to the better peer's, ``processor ms`` what a request costs the service.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from beside_servers import example_path  # noqa: F401

# isort: split
import numpy as np
import onnx
import uvloop
from against_peers.process import worker_environment
from onnx import TensorProto, helper, numpy_helper
from picture_demo import port_of
from picture_load import load
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

from beside_servers.image_service_worker import ENGINES, INPUT
from pictures.mobilenet import SIZE, mobilenet_v2

WORKER = Path(__file__).with_name("image_service_worker.py")
OURS = ENGINES[0]
CPU_COUNT = 2
CLIENTS = (1, 8, 32)
WANTED = 1.15
WARM_UP_S = 1.0


@dataclass(frozen=True)
class Turn:
    """One engine's numbers in one round."""

    rate: float
    p50_ms: float
    p99_ms: float
    processor_ms: float


def model_of_bytes() -> onnx.ModelProto:
    """Put before MobileNetV2 what makes floats of a decoded picture, as ordinary nodes."""
    model = mobilenet_v2()
    graph = model.graph
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info(INPUT, TensorProto.UINT8, [1, SIZE, SIZE, 3]))
    steps = [
        helper.make_node("Cast", [INPUT], ["as_float"], "to_float", to=TensorProto.FLOAT),
        helper.make_node("Sub", ["as_float", "mean"], ["centred"], "centre"),
        helper.make_node("Mul", ["centred", "factor"], ["scaled"], "scale"),
        helper.make_node("Transpose", ["scaled"], ["image"], "to_nchw", perm=[0, 3, 1, 2]),
    ]
    nodes = [*steps, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    numbers = {"mean": (123.7, 116.3, 103.5), "factor": (0.0171, 0.0175, 0.0174)}
    for name, values in numbers.items():
        graph.initializer.append(numpy_helper.from_array(np.array(values, np.float32), name))
    graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    return model


@asynccontextmanager
async def served(engine: str, model: Path, hint: str) -> AsyncIterator[tuple[int, int]]:
    """Start a service; gives its process and its port, and stops it."""
    command = ["--engine", engine, "--model", str(model), "--hint", hint]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(WORKER),
        *command,
        env=worker_environment(),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process.pid, await port_of(process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


def processor_s(pid: int) -> float:
    """Read how much processor time a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def turn(pid: int, port: int, clients: int, seconds: float) -> Turn:
    before_s = processor_s(pid)
    outcome = await load(port, clients=clients, seconds=seconds)
    if set(outcome.counts) != {200}:
        raise RuntimeError(f"the service answered {dict(outcome.counts)}, and all were to be 200")
    spent_ms = (processor_s(pid) - before_s) * 1e3
    p50_ms, p99_ms = outcome.percentile_ms(50), outcome.percentile_ms(99)
    return Turn(outcome.rate, p50_ms, p99_ms, spent_ms / outcome.counts[200])


async def measure(options: argparse.Namespace, model: Path) -> list[dict[str, Any]]:
    turns: dict[tuple[int, str], list[Turn]] = defaultdict(list)
    chance = random.Random(options.seed)
    async with AsyncExitStack() as stack:
        services = {
            engine: await stack.enter_async_context(served(engine, model, options.hint))
            for engine in options.engines
        }
        for pid, port in services.values():
            await turn(pid, port, CPU_COUNT, WARM_UP_S)
        for _ in range(options.rounds):
            for clients in options.clients:
                for engine in chance.sample(options.engines, len(options.engines)):
                    found = await turn(*services[engine], clients, options.seconds)
                    turns[clients, engine].append(found)
    return [_row(clients, engine, found) for (clients, engine), found in sorted(turns.items())]


def _row(clients: int, engine: str, turns: list[Turn]) -> dict[str, Any]:
    return {
        "clients": clients,
        "engine": engine,
        "pictures_per_s": round(median(turn.rate for turn in turns), 1),
        "p50_ms": round(median(turn.p50_ms for turn in turns), 2),
        "p99_ms": round(median(turn.p99_ms for turn in turns), 2),
        "processor_ms": round(median(turn.processor_ms for turn in turns), 2),
    }


def compared(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to our rows the ratio of the rates to the better peer's, and of the 99th percentiles."""
    for row in rows:
        peers = [
            peer for peer in rows if peer["clients"] == row["clients"] and peer["engine"] != OURS
        ]
        if row["engine"] == OURS and peers:
            best_rate = max(peer["pictures_per_s"] for peer in peers)
            best_p99 = min(peer["p99_ms"] for peer in peers)
            row["ratio"] = round(row["pictures_per_s"] / best_rate, 3)
            row["p99_ratio"] = round(row["p99_ms"] / best_p99, 3)
    return rows


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="the image service", title_justify="left", box=SIMPLE)
    headings = {
        "clients": "clients",
        "engine": "engine",
        "pictures_per_s": "/s",
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "processor_ms": "processor ms",
        "ratio": "ratio",
        "p99_ratio": "of p99",
    }
    for heading in headings.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(str(row.get(key, "")) for key in headings))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--clients", nargs="+", type=int, default=list(CLIENTS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one turn")
    parser.add_argument("--hint", choices=("LATENCY", "THROUGHPUT"), default="THROUGHPUT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    options = parser.parse_args()
    missing = [engine for engine in options.engines if find_spec(engine) is None]
    if missing:
        parser.error(f"{', '.join(missing)} is not installed: pip install 'aioinfer[bench]'")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPU_COUNT])
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "mobilenet_v2_bytes.onnx"
        onnx.save(model_of_bytes(), model)
        rows = compared(uvloop.run(measure(options, model)))
    Console().print(table_of(rows))
    write_rows(options.json, "image_service", rows, hint=options.hint, wanted=WANTED)
