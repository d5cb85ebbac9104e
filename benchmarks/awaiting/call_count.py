"""How many Python functions one awaited request calls, in each situation that its way depends on.

    python benchmarks call_count
    python benchmarks call_count --save    # and keep the counts under benchmarks/results/

A count says on any machine, however busy, what a request costs beside the computing: each call
takes 50 to 100 ns. Counted are calls and resumptions of functions of aioinfer, on all threads,
for each of many requests that follow each other, or that many tasks ask for at a time; what the
network does once, and what it does for a thousand requests at a time, is not in the median. The
accelerator is the driver of the tests, which computes at once, and whose own functions do not
count.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import platform
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from types import CodeType, FrameType
from typing import Any

import numpy as np
from networks.perceptron import INPUTS, perceptron
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import aioinfer
from aioinfer.runtime.loops.inline_turn import threads
from aioinfer.runtime.runs import inline_gate

ROOT = Path(__file__).parents[2]
PACKAGE = tuple(
    str(ROOT / part) + "/" for part in ("aioinfer", "runtime", "executors", "backends", "serving")
)
WARM_UP = 40
"""Runs until a plan is bound, its time known and every pool filled."""

ROUNDS = 5
"""Of these the least counts for tasks that ask together: a neighbour on the core adds calls."""

PAUSE_S = 0.002
"""After it no thread works for a request that was answered; if one does, the median helps."""
WORKER = {"INLINE_THRESHOLD_US": 0}
INLINE = {"INLINE_THRESHOLD_US": 100_000}
"""Counting makes runs longer, and so does a busy machine."""
WORKER_CPU = {"DEVICE_PROPERTIES": {"CPU": WORKER}}
INLINE_CPU = {"DEVICE_PROPERTIES": {"CPU": INLINE}}
NO_PLAN_IS_SHORT = {"INLINE_THRESHOLD_US": 1}


@dataclass(frozen=True)
class Situation:
    """One way of a request through a network; ``most`` is the goal."""

    name: str
    device: str
    config: dict[str, Any]
    is_open: bool = False
    by_request: bool = False
    most: int | None = None
    task_count: int = 0
    """More than 0: as many tasks ask at a time, and the mean of their requests counts."""


SITUATIONS = (
    Situation("network.infer, worker", "CPU", WORKER, most=32),
    Situation("request.infer, worker", "CPU", WORKER, by_request=True, most=34),
    Situation("network.infer, plan too long for inline", "CPU", NO_PLAN_IS_SHORT),
    Situation("request.infer, plan too long for inline", "CPU", NO_PLAN_IS_SHORT, by_request=True),
    Situation("network.infer, worker, open batch", "CPU", WORKER, is_open=True, most=40),
    Situation(
        "request.infer, worker, open batch", "CPU", WORKER, is_open=True, by_request=True, most=42
    ),
    Situation("network.infer, inline", "CPU", INLINE, most=4),
    Situation("request.infer, inline", "CPU", INLINE, by_request=True, most=4),
    Situation("network.infer, inline, open batch", "CPU", INLINE, is_open=True, most=4),
    Situation("64 tasks, network.infer, worker", "CPU", WORKER, is_open=True, task_count=64),
    Situation(
        "64 tasks, network.infer, BATCH", "BATCH:CPU(16)", {}, is_open=True, most=24, task_count=64
    ),
    Situation(
        "network.infer, inline, open batch, BATCH", "BATCH:CPU(16)", INLINE_CPU, True, most=29
    ),
    Situation("network.infer, inline, MULTI of one", "MULTI:CPU", INLINE_CPU, most=4),
    Situation("network.infer, worker, MULTI of one", "MULTI:CPU", WORKER_CPU, most=32),
    Situation("network.infer, worker, MULTI of two", "MULTI:CPU,REFERENCE.0", WORKER_CPU),
    Situation("network.infer, inline, AUTO", "AUTO:CPU,REFERENCE", INLINE_CPU, most=4),
    Situation("network.infer, fake accelerator", "FAKE", {}, most=140),
    Situation("request.infer, fake accelerator", "FAKE", {}, by_request=True, most=140),
)


class Calls:
    """Counts the calls of aioinfer's functions, by function; on every thread that has it on."""

    def __init__(self) -> None:
        self.codes: list[CodeType] = []
        self._is_ours: dict[CodeType, bool] = {}

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        is_ours = self._is_ours.get(code)
        if is_ours is None:
            is_ours = self._is_ours[code] = code.co_filename.startswith(PACKAGE)
        if is_ours:
            self.codes.append(code)

    def take(self) -> Counter[CodeType]:
        """Hand out what was counted since the last time."""
        codes, self.codes = self.codes, []
        return Counter(codes)


@dataclass(frozen=True)
class Count:
    """What one situation costs: the calls of the median request, and in how many files."""

    situation: Situation
    calls: Counter[CodeType]
    request_count: int = 1
    """How many requests the calls are of."""

    @property
    def call_count(self) -> int:
        return round(self.calls.total() / self.request_count)

    @property
    def file_count(self) -> int:
        return len({code.co_filename for code in self.calls})

    def row(self) -> dict[str, object]:
        """Return it as the results are kept."""
        return {
            "situation": self.situation.name,
            "call_count": self.call_count,
            "file_count": self.file_count,
            "most": self.situation.most,
        }


def count_of(situation: Situation, core: aioinfer.Core, calls: Calls, count: int) -> Count:
    """Count the calls of requests that follow each other; the median one's."""
    model: Any = perceptron("N" if situation.is_open else 1)
    inputs: Any = INPUTS
    if situation.device == "FAKE":
        from unit.backends.accelerator.serving import negating

        inputs = {"x": np.ones((3, 4), np.float32)}
        model = negating(inputs["x"])
    with core.load_network(model, situation.device, situation.config) as network:
        target: Any = network.create_infer_request() if situation.by_request else network

        async def ask(times: int) -> None:
            for _ in range(times):
                await target.infer(inputs)

        async def measure_together() -> Counter[CodeType]:
            await asyncio.gather(*(ask(WARM_UP) for _ in range(situation.task_count)))
            await asyncio.sleep(PAUSE_S)
            calls.take()
            counted = []
            for _ in range(ROUNDS):
                await asyncio.gather(*(ask(count) for _ in range(situation.task_count)))
                await asyncio.sleep(PAUSE_S)
                counted.append(calls.take())
            return min(counted, key=Counter.total)

        if situation.task_count:
            found = asyncio.run(measure_together())
            return Count(situation, found, situation.task_count * count)

        async def measure() -> list[Counter[CodeType]]:
            counted = []
            for _ in range(WARM_UP + count):
                threads.turn.most_ns = sys.maxsize  # counting would use up the turn of a run
                await target.infer(inputs)
                await asyncio.sleep(PAUSE_S)
                counted.append(calls.take())
            return counted[WARM_UP:]

        usual_ns = threads.turn.most_ns
        try:
            counted = asyncio.run(measure())
        finally:
            threads.turn.most_ns = usual_ns
    middle = median_low(found.total() for found in counted)
    if middle == 0:
        raise SystemExit(
            f"{situation.name}: no call of aioinfer was seen, for it is imported from "
            f"{Path(aioinfer.__file__).parent} and only functions under {ROOT} are "
            f"counted; install that folder with `pip install -e .`"
        )
    return Count(situation, next(found for found in counted if found.total() == middle))


@contextmanager
def profiled() -> Iterator[Calls]:
    """Count on this thread, and on all that are started in the block.

    Counting, and whatever else the machine does, makes no run too long to be one native call.
    """
    calls, brief_ns = Calls(), inline_gate.BRIEF_NS
    inline_gate.BRIEF_NS = sys.maxsize
    threading.setprofile(calls.note)
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        inline_gate.BRIEF_NS = brief_ns
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def core_with_fake() -> Iterator[aioinfer.Core]:
    """Make a Core that has the tests' accelerator as FAKE."""
    sys.path.insert(0, str(ROOT / "tests"))
    from unit.backends.accelerator.fake_driver import FakeDriver
    from unit.backends.accelerator.serving import serving

    with serving(FakeDriver(is_eager=True)) as core:
        yield core


def table_of(counts: list[Count]) -> Table:
    """One row for each situation."""
    table = Table(title="Python calls of aioinfer for one awaited request", box=SIMPLE)
    table.add_column("")
    for title in ("calls", "files", "at most"):
        table.add_column(title, justify="right")
    for count in counts:
        most = count.situation.most
        figures = (str(count.call_count), str(count.file_count), "" if most is None else str(most))
        table.add_row(count.situation.name, *figures)
    return table


def save(counts: list[Count]) -> Path:
    """Keep the counts as the result of today."""
    file = ROOT / "benchmarks" / "results" / f"{datetime.date.today()}-call_count.json"
    result = {
        "python": platform.python_version(),
        "aioinfer": aioinfer.__version__,
        "cases": {"call_count": [count.row() for count in counts]},
    }
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=25, help="of each situation")
    parser.add_argument("--save", action="store_true", help="keep the counts")
    parser.add_argument("--functions", metavar="TEXT", help="list those of situations with TEXT")
    arguments = parser.parse_args()
    if arguments.requests < 1:
        parser.error("--requests takes numbers from 1 on")
    console = Console()
    with profiled() as calls, core_with_fake() as core:
        counts = [count_of(item, core, calls, arguments.requests) for item in SITUATIONS]
    console.print(table_of(counts))
    for count in counts if arguments.functions else ():
        if arguments.functions in count.situation.name:
            console.print(f"{count.situation.name}:")
            for code, number in count.calls.items():
                place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
                each = f"{number / count.request_count:6.2f}" if count.request_count > 1 else number
                console.print(f"  {each:3} {place:28} {code.co_qualname}", highlight=False)
    if arguments.save:
        console.print(f"kept in {save(counts)}")
