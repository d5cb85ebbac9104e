"""Requests joined by BATCH, beside requests one by one, whole batches, and batchers with a timer.

    python benchmarks batching
    python benchmarks batching --models perceptron --tasks 1 256 --rounds 5

Tasks ask for one row each, and again as soon as they are answered. Turns of all ways take turns:

- ``one by one``: CPU as it is, and ``by a worker``, where no run stays on its caller's thread;
- ``batch``: ``BATCH:CPU(n)``;
- ``fixed``: whole batches of n rows that one caller has ready, what n rows can cost at least;
- ``timer``: what users write: a list, and a timer of 2 ms or n rows, whichever comes first, in
  front of CPU and in front of onnxruntime on a thread.

Rates are rows a second; times are those of a row, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import uvloop
from models import MODELS
from networks.perceptron import INPUTS, perceptron
from row_file import write_rows

import aioinfer

Rows = Mapping[str, np.ndarray[Any, Any]]
Call = Callable[[Rows], Awaitable[Any]]
TIMER_S = 0.002


class TimerBatcher:
    """Collects rows until there are enough or a timer rings; for one event loop."""

    def __init__(self, run: Call, most_rows: int) -> None:
        self._run, self._most_rows = run, most_rows
        self._waiting: list[tuple[Rows, asyncio.Future[Any]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def infer(self, inputs: Rows) -> Any:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting.append((inputs, answer))
        if len(self._waiting) >= self._most_rows:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(TIMER_S, self._flush)
        return await answer

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group, self._waiting = self._waiting, []
        task = asyncio.ensure_future(self._run_all(group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_all(self, group: list[tuple[Rows, asyncio.Future[Any]]]) -> None:
        joined = {
            name: np.concatenate([inputs[name] for inputs, _ in group]) for name in group[0][0]
        }
        results = await self._run(joined)
        for index, (_, answer) in enumerate(group):
            answer.set_result({name: value[index : index + 1] for name, value in results.items()})


@dataclass
class Measured:
    """What one way gave in its turns."""

    rates: list[float] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)

    def row(self) -> dict[str, float]:
        p50, p99 = np.percentile(self.times_s, [50, 99]) * 1e3
        return {
            "rows_per_s": round(median(self.rates), 1),
            "p50_ms": round(float(p50), 3),
            "p99_ms": round(float(p99), 3),
        }


async def turn(call: Call, inputs: Rows, tasks: int, seconds: float, rows: int = 1) -> Measured:
    """Have this many tasks ask one after the other for so long."""
    measured, end = Measured(), time.perf_counter() + seconds

    async def work() -> None:
        while (began := time.perf_counter()) < end:
            await call(inputs)
            measured.times_s.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(tasks)))
    measured.rates.append(rows * len(measured.times_s) / (time.perf_counter() - began))
    return measured


async def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure one model with all numbers of tasks."""
    most_rows = options.rows
    if name == "perceptron":
        model, one = perceptron("batch"), INPUTS
    else:
        model = MODELS[name].build(batch="batch")
        one = MODELS[name].inputs(np.random.default_rng(1), 1)
    many = {key: np.repeat(value, most_rows, axis=0) for key, value in one.items()}
    loop = asyncio.get_running_loop()
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    rows = []
    async with aioinfer.Core() as core:
        with ThreadPoolExecutor(1) as pool:
            plain = core.load_network(model, "CPU")
            worker = core.load_network(model, "CPU", {"INLINE_THRESHOLD_US": 0})
            joined = core.load_network(model, f"BATCH:CPU({most_rows})")

            async def run_peer(inputs: Rows) -> Any:
                found = await loop.run_in_executor(pool, session.run, names, dict(inputs))
                return dict(zip(names, found, strict=True))

            ways: dict[str, Call] = {
                "one by one": plain.infer,
                "by a worker": worker.infer,
                "batch": joined.infer,
                "timer": TimerBatcher(worker.infer, most_rows).infer,
                "onnxruntime with a timer": TimerBatcher(run_peer, most_rows).infer,
                "onnxruntime one by one": run_peer,
            }
            for tasks in options.tasks:
                found = {way: Measured() for way in (*ways, "fixed")}
                for number in range(options.rounds + 1):
                    for way, total in found.items():
                        if way == "fixed":
                            got = await turn(worker.infer, many, 2, options.seconds, most_rows)
                        else:
                            got = await turn(ways[way], one, tasks, options.seconds)
                        if number:  # the first is for warming up
                            total.rates += got.rates
                            total.times_s += got.times_s
                for way, total in found.items():
                    row = {"model": name, "tasks": tasks, "way": way, **total.row()}
                    print(row, flush=True)
                    rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["perceptron", "minilm_l6", "resnet50"]
    parser.add_argument("--models", nargs="+", default=names, choices=["perceptron", *MODELS])
    parser.add_argument("--rows", type=int, default=16, help="the most rows of a run")
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", type=Path, help="write the rows to a file")
    options = parser.parse_args()
    rows = [row for name in options.models for row in uvloop.run(measure(name, options))]
    write_rows(options.json, "batching", rows)
