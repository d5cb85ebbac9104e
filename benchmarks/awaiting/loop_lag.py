"""How late an event loop is: under full load, and while a network is loaded.

A tick is due on the loop each millisecond; its lag is how much later it comes, and a tick that was
due while the loop stood still counts as well. Beside it stands how long a ``call_soon`` takes, that
is how much was ready to run before it. Under load many tasks await one network, whose plans are
there. Loading is ``core.load_network_async`` of a file, again and again. The interpreter's switch
interval stays as it is. What the machine is good for, without aioinfer, stand above them: a loop
that is idle (its timers are rounded to a millisecond), and one beside as many threads as there are
processors, which hash without the interpreter's lock. On Linux, "ours" is what is left of a lag
without the time for which the loop's thread was ready and had no processor: on a machine that
others use as well, that is the part to look at.

    python benchmarks loop_lag --blame    # also what other threads did when a tick was late
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import uvloop
from models import MODELS, Inputs
from networks.perceptron import perceptron
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

PERIOD_S = 0.001
WANTED_MS = {"load": 5.0, "loading": 20.0}
"""The 99th percentile of the lag: under load while nothing compiles, and while a network loads."""
BLAME_MS = 10.0  # two switch intervals: less is what each thread may take
BLAMED_FRAMES = 3
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
TINY = "perceptron"


@dataclass(frozen=True)
class Row:
    """Lags of an event loop in milliseconds; ``ticks`` is how many were due."""

    kind: str
    model: str
    device: str
    loop: str
    ticks: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    ours_p99_ms: float
    soon_p99_ms: float


@dataclass
class Lags:
    """What the probe has found, in milliseconds."""

    ticks: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    soon: list[float] = field(default_factory=list)
    blamed: Counter[str] = field(default_factory=Counter)
    """Milliseconds by what the other threads did after a late tick."""

    def row(self, kind: str, model: str, device: str, loop: str) -> Row:
        p50, p99 = (float(np.percentile(self.ticks, share)) for share in (50, 99))
        ours, soon = (float(np.percentile(lags, 99)) for lags in (self.ours, self.soon))
        worst = max(self.ticks)
        return Row(kind, model, device, loop, len(self.ticks), p50, p99, worst, ours, soon)


def processor_wait_ms() -> float:
    """How long this thread has been ready without a processor, since it began; 0 if unknown."""
    try:
        text = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return int(text.split()[1]) / 1e6


class Probe:
    """Ticks on the running loop, from start to stop."""

    def __init__(
        self,
        lags: Lags,
        *,
        is_blaming: bool,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._lags, self._is_blaming = lags, is_blaming
        self._clock, self._sleep = clock, sleep
        self._is_over = False

    async def run(self) -> None:
        loop, clock = asyncio.get_running_loop(), self._clock
        due_s, wait_ms, waited_ms = clock(), processor_wait_ms(), 0.0
        while not self._is_over:
            due_s += PERIOD_S
            if (left_s := due_s - clock()) > 0:
                loop.call_soon(self._soon, clock())
                await self._sleep(left_s)
                waited_ms, wait_ms = processor_wait_ms() - wait_ms, processor_wait_ms()
                lag_ms = (clock() - due_s) * 1e3
                if self._is_blaming and lag_ms - waited_ms > BLAME_MS:
                    self._blame(lag_ms)
            lag_ms = (clock() - due_s) * 1e3
            self._lags.ticks.append(lag_ms)
            self._lags.ours.append(max(0.0, lag_ms - waited_ms))

    def stop(self) -> None:
        self._is_over = True

    def _soon(self, asked_s: float) -> None:
        self._lags.soon.append((self._clock() - asked_s) * 1e3)

    def _blame(self, lag_ms: float) -> None:
        """Look where the other threads are: one of them has only just let the loop go on."""
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            place: Any = frame
            if ident == threading.get_ident() or place.f_code.co_filename.endswith("threading.py"):
                continue  # it waits
            lines = []
            while place is not None and len(lines) < BLAMED_FRAMES:
                code = place.f_code
                lines.append(f"{Path(code.co_filename).name}:{place.f_lineno} {code.co_name}")
                place = place.f_back
            self._lags.blamed[f"{names.get(ident)}: {' < '.join(lines)}"] += round(lag_ms)


@asynccontextmanager
async def probing(lags: Lags, *, is_blaming: bool) -> AsyncIterator[None]:
    probe = Probe(lags, is_blaming=is_blaming)
    task = asyncio.create_task(probe.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        probe.stop()
        await task


async def sleep_beside_hashing(seconds: float) -> None:
    """Sleep while a thread for each processor computes natively."""
    is_over, block = threading.Event(), bytes(1 << 20)

    def compute() -> None:
        while not is_over.is_set():
            hashlib.sha256(block).digest()

    threads = [threading.Thread(target=compute) for _ in range(os.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    await asyncio.sleep(seconds)
    is_over.set()
    for thread in threads:
        thread.join()


async def keep_busy(
    network: aioinfer.ExecutableNetwork, inputs: Inputs, task_count: int, seconds: float
) -> None:
    """Have a number of tasks await the network for some seconds."""
    until_s = time.perf_counter() + seconds

    async def work() -> None:
        while time.perf_counter() < until_s:
            await network.infer(inputs)

    await asyncio.gather(*(work() for _ in range(task_count)))


async def load(core: aioinfer.Core, file: Path, device: str, count: int) -> None:
    for _ in range(count):
        async with await core.load_network_async(file, device):
            pass


class Bench:
    """Measures row by row, and prints what is to blame if that is asked for."""

    def __init__(self, loop: str, *, is_blaming: bool) -> None:
        self._loop, self._is_blaming = loop, is_blaming
        self.rows: list[Row] = []

    def measure(
        self,
        name: tuple[str, str, str],
        work: Callable[[], Awaitable[None]],
        warm_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        lags = Lags()

        async def main() -> None:
            if warm_up is not None:
                await warm_up()
            gc.collect()
            async with probing(lags, is_blaming=self._is_blaming):
                await work()

        with asyncio.Runner(loop_factory=LOOPS[self._loop]) as runner:
            runner.run(main())
        self.rows.append(lags.row(*name, self._loop))
        for place, late_ms in lags.blamed.most_common(12):
            print(f"{' '.join(name)}: {late_ms} ms late: {place}")


def build(name: str, folder: str) -> tuple[Path, Inputs]:
    """Write a model's file, and draw inputs for it."""
    file = Path(folder, f"{name}.onnx")
    if name == TINY:
        onnx.save(perceptron(), file)
        return file, {"x": np.ones((1, 16), np.float32)}
    onnx.save(MODELS[name].build(), file)
    return file, MODELS[name].inputs(np.random.default_rng(0), 1)


def measure(loop: str, arguments: argparse.Namespace) -> list[Row]:
    bench = Bench(loop, is_blaming=arguments.blame)
    seconds: float = arguments.seconds
    bench.measure(("idle", "", ""), partial(asyncio.sleep, seconds))
    bench.measure(("hashing threads", "", ""), partial(sleep_beside_hashing, seconds))
    with tempfile.TemporaryDirectory() as folder, aioinfer.Core() as core:
        for name in arguments.load_models:
            file, inputs = build(name, folder)
            for device in arguments.devices:
                with core.load_network(file, device, {"PERFORMANCE_HINT": "THROUGHPUT"}) as network:
                    busy = partial(keep_busy, network, inputs, arguments.tasks)
                    bench.measure(
                        ("load", name, device), partial(busy, seconds), partial(busy, seconds / 4)
                    )
        for name in arguments.loading_models:
            file, _ = build(name, folder)
            work = partial(load, core, file, "CPU", arguments.loads)
            bench.measure(("loading", name, "CPU"), work, partial(load, core, file, "CPU", 1))
    return bench.rows


def verdict(row: Row) -> str:
    """Say whether a row keeps what is wanted, or would on a machine of its own."""
    wanted = WANTED_MS.get(row.kind)
    if wanted is None:
        return ""
    if row.p99_ms < wanted:
        return f"< {wanted:g}: kept"
    return f"< {wanted:g}: {'ours kept' if row.ours_p99_ms < wanted else 'MISSED'}"


def table_of(rows: list[Row]) -> Table:
    table = Table(title="lag of the event loop, ms", box=SIMPLE)
    table.add_column("")
    for title in ("p50", "p99", "max", "ours p99", "soon p99", "wanted p99"):
        table.add_column(title, justify="right")
    for row in rows:
        numbers = (row.p50_ms, row.p99_ms, row.max_ms, row.ours_p99_ms, row.soon_p99_ms)
        names = " ".join(filter(None, (row.kind, row.model, row.device, row.loop)))
        table.add_row(names, *(f"{number:.1f}" for number in numbers), verdict(row))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = [TINY, *MODELS]
    parser.add_argument(
        "--load-models",
        nargs="*",
        default=[TINY, "mobilenet_v2", "minilm_l6"],
        choices=known,
        metavar="M",
    )
    parser.add_argument(
        "--loading-models", nargs="*", default=["resnet50", "minilm_l6"], choices=known, metavar="M"
    )
    parser.add_argument("--devices", nargs="+", default=["CPU", "ONNXRUNTIME"], metavar="D")
    parser.add_argument("--loops", nargs="+", default=["asyncio"], choices=LOOPS, metavar="LOOP")
    parser.add_argument("--tasks", type=int, default=16, help="that await one network under load")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row but for loading")
    parser.add_argument(
        "--loads", type=int, default=15, help="of each model, whose ticks one p99 is of"
    )
    parser.add_argument("--blame", action="store_true", help="say what others did at late ticks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if min(arguments.tasks, arguments.loads) < 1 or arguments.seconds <= 0:
        parser.error("--tasks and --loads take numbers from 1 on, --seconds numbers above 0")
    rows = [row for loop in arguments.loops for row in measure(loop, arguments)]
    Console().print(table_of(rows))
    write_rows(
        arguments.json,
        "loop_lag",
        [asdict(row) for row in rows],
        switch_interval_ms=sys.getswitchinterval() * 1e3,
        tasks=arguments.tasks,
    )
