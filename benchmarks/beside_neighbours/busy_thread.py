"""What a busy Python thread costs an inference on CPU and on onnxruntime.

    python benchmarks busy_thread

While another Python thread computes, each return from native code to Python can wait for a switch
interval of the interpreter (5 ms), and so can each hand-over between threads. So an inference
should be one native call. Every engine runs with one compute thread, alone and beside a thread that
only counts, in turns of a fraction of a second, so that other work on the machine falls on all
alike. There are two tests: calls that block their thread, where CPU computes on that thread, as
onnxruntime does; and awaited ones, by a worker of CPU and by onnxruntime in ``run_in_executor``.
Times are medians over the rounds of a turn's median; slowdowns are medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import onnxruntime
from models import MODELS, Inputs
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer
from beside_neighbours.threads import busy_thread

DEFAULT_MODELS = ("resnet50", "mobilenet_v2")
FEWEST_CALLS = 3  # of a turn, however long they take
PEER = "onnxruntime"
BLOCKING, AWAITED = "blocking", "awaited"

Infer = Callable[[], object]
Engines = dict[tuple[str, str], Infer]
"""Each inference by its test and its engine."""


@dataclass(frozen=True)
class Row:
    """Milliseconds per inference of one engine, and how much slower it is beside a busy thread."""

    model: str
    test: str
    engine: str
    alone_ms: float
    busy_ms: float
    added_ms: float
    """What the busy thread costs, however fast the engine is alone."""
    slowdown: float
    slower_than_peer: float
    """Its slowdown over onnxruntime's in the same test and round; 1 is as good."""


def use_onnxruntime(file: str, inputs: Inputs, loop: asyncio.AbstractEventLoop) -> Engines:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])

    def block() -> object:
        return session.run(None, inputs)

    def wait() -> object:
        return loop.run_until_complete(loop.run_in_executor(None, block))

    return {(BLOCKING, PEER): block, (AWAITED, PEER): wait}


def use_cpu(
    core: aioinfer.Core, file: str, inputs: Inputs, loop: asyncio.AbstractEventLoop
) -> Engines:
    network = core.load_network(file, "CPU", {"INFERENCE_NUM_THREADS": 1})
    request = network.create_infer_request()

    def block() -> object:
        return request.infer_sync(inputs)

    def wait() -> object:
        return loop.run_until_complete(network.infer(inputs))

    return {(BLOCKING, "CPU"): block, (AWAITED, "CPU"): wait}


def turn_ms(infer: Infer, seconds: float) -> float:
    """Infer for so long; the median of the calls in milliseconds."""
    gc.collect()
    times: list[float] = []
    began_s = time.perf_counter()
    while len(times) < FEWEST_CALLS or time.perf_counter() - began_s < seconds:
        before_s = time.perf_counter()
        infer()
        times.append((time.perf_counter() - before_s) * 1e3)
    return median(times)


def measure(name: str, round_count: int, seconds: float) -> list[Row]:
    inputs = MODELS[name].inputs(np.random.default_rng(0), 1)
    alone: dict[tuple[str, str], list[float]] = {}
    busy: dict[tuple[str, str], list[float]] = {}
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder, aioinfer.Core() as core, closing(loop):
        file = str(Path(folder, f"{name}.onnx"))
        onnx.save(MODELS[name].build(), file)
        engines = use_onnxruntime(file, inputs, loop) | use_cpu(core, file, inputs, loop)
        for infer in engines.values():
            turn_ms(infer, seconds / 2)
        for number in range(round_count):
            for key in list(engines) if number % 2 else list(reversed(engines)):
                alone.setdefault(key, []).append(turn_ms(engines[key], seconds))
                with busy_thread():
                    busy.setdefault(key, []).append(turn_ms(engines[key], seconds))
        loop.run_until_complete(loop.shutdown_default_executor())
    slowdowns = {key: ratios(busy[key], alone[key]) for key in engines}
    return [
        Row(
            name,
            test,
            engine,
            median(alone[test, engine]),
            median(busy[test, engine]),
            median(busy[test, engine]) - median(alone[test, engine]),
            median(slowdowns[test, engine]),
            median(ratios(slowdowns[test, engine], slowdowns[test, PEER])),
        )
        for test, engine in sorted(engines, key=lambda key: key[0] == AWAITED)
    ]


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def table_of(rows: list[Row]) -> Table:
    table = Table(title="ms per inference, one compute thread", box=SIMPLE)
    for title in ("model", "test", "engine"):
        table.add_column(title)
    for title in ("alone", "beside a busy thread", "added", "slowdown", f"over {PEER}'s"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row.model,
            row.test,
            row.engine,
            f"{row.alone_ms:.2f}",
            f"{row.busy_ms:.2f}",
            f"{row.added_ms:.2f}",
            f"{row.slowdown:.2f}",
            f"{row.slower_than_peer:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=DEFAULT_MODELS, choices=MODELS, metavar="M")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds takes numbers from 1 on, --seconds numbers above 0")
    rows: list[Row] = []
    for name in arguments.models:
        rows += measure(name, arguments.rounds, arguments.seconds)
    console = Console()
    console.print(table_of(rows))
    console.print(f"wanted: CPU is slowed down no more than {PEER}, 1.00 in the last column")
    write_rows(
        arguments.json,
        "busy_thread",
        [asdict(row) for row in rows],
        onnxruntime=onnxruntime.__version__,
        switch_interval_ms=sys.getswitchinterval() * 1e3,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )
