"""What awaiting costs: networks of CPU and of ONNXRUNTIME beside what their peers offer asyncio.

    python benchmarks overhead
    python benchmarks overhead --loops uvloop --tasks 64 --rounds 5

A tiny perceptron (1x16 -> 32 -> 8), so that nearly all of the time is the way to the engine and
back. Ours are ``network.infer`` and ``request.infer`` as they come (short runs stay on the loop's
thread) and with INLINE_THRESHOLD_US=0 (each run goes to a worker). asyncio_bridges.py says how the
peers are bridged. All take turns, round by round, in one process, so that other work on the machine
falls on all alike. Times are medians of the rounds, ratios medians of the rounds' ratios; the ratio
of CPU is the one to the peer that is nearest, the ratio of ONNXRUNTIME the one to run_in_executor
over its own session. Without OpenVINO (extra ``bench``) its row is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import uvloop
from networks.perceptron import INPUTS, perceptron
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer
from awaiting.asyncio_bridges import EXECUTOR, PEERS, POOL, Call, Job, output_of, peer_calls

Ways = dict[str, list[Call]]
MakeLoop = Callable[[], asyncio.AbstractEventLoop]

LOOPS: dict[str, MakeLoop] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
CONFIGS: dict[str, dict[str, Any]] = {"CPU": {}, "ONNXRUNTIME": {"INFERENCE_NUM_THREADS": 1}}
"""ONNXRUNTIME keeps a run on its caller's thread if one thread computes it; CPU finds out."""
RIVALS = {"CPU": PEERS, "ONNXRUNTIME": (EXECUTOR, POOL)}
WANTED = {"CPU": 3.0, "ONNXRUNTIME": 3.0}
"""Times the requests/s of the best rival, at 64 tasks on uvloop."""
FLOOR = "the session alone"
HOP = ", worker"
OURS = {
    f"{device} {kind}.infer{suffix}": device
    for device in CONFIGS
    for suffix in ("", HOP)
    for kind in ("network", "request")
}
"""Our ways, and the device of each."""
WAYS = (*OURS, *PEERS, FLOOR)


@dataclass(frozen=True)
class Row:
    """What one way costs, in microseconds; ``throughput`` is in requests/s.

    ``p50_us`` is the latency with one task. ``ratios`` says how many times cheaper it is than each
    rival, ``p50_ratios`` the same of the latency; both are empty for the peers themselves.
    """

    loop: str
    task_count: int
    way: str
    request_us: float
    p50_us: float | None = None
    ratios: Mapping[str, float] = field(default_factory=dict)
    p50_ratios: Mapping[str, float] = field(default_factory=dict)

    @property
    def throughput(self) -> float:
        return 1e6 / self.request_us

    def flat(self) -> dict[str, object]:
        """Return it as the runner of all benchmarks wants it."""
        found: dict[str, object] = {
            "loop": self.loop,
            "task_count": self.task_count,
            "way": self.way,
            "request_us": self.request_us,
            "throughput": self.throughput,
        }
        if self.p50_us is not None:
            found["p50_us"] = self.p50_us
        if self.ratios:
            found["least_ratio"], found["ratios"] = min(self.ratios.values()), dict(self.ratios)
        if self.p50_ratios:
            found["least_p50_ratio"] = min(self.p50_ratios.values())
        return found


async def time_us(calls: list[Call], request_count: int) -> float:
    """Keep all calls busy until that number of requests is through; microseconds for each."""
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
    """How much is measured, on which loop."""

    loop: str
    task_count: int
    request_count: int
    round_count: int


@dataclass
class Times:
    """The microseconds of each way, a number for each round; and why a way is left out."""

    request_us: dict[str, list[float]] = field(default_factory=dict)
    p50_us: dict[str, list[float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def our_calls(networks: Mapping[str, aioinfer.ExecutableNetwork], task_count: int) -> Ways:
    """List the calls of our ways, one for each task; ``networks`` by device and suffix."""
    ways: Ways = {}
    for way, device in OURS.items():
        network = networks[device + (HOP if way.endswith(HOP) else "")]
        if "network.infer" in way:
            ways[way] = [partial(network.infer, INPUTS)] * task_count
        else:
            requests = [network.create_infer_request() for _ in range(task_count)]
            ways[way] = [partial(request.infer, INPUTS) for request in requests]
    return ways


async def rounds(
    networks: Mapping[str, aioinfer.ExecutableNetwork], model: bytes, setting: Setting
) -> Times:
    """Measure each way in each round; and its latency, if there is one task."""
    count, tasks = setting.request_count, setting.task_count
    session = networks["ONNXRUNTIME"].session  # type: ignore[attr-defined]
    with ExitStack() as stack:
        job = Job(model, INPUTS, "y", tasks, session)
        peers, left_out = peer_calls(job, stack)
        ways: Ways = our_calls(networks, tasks) | {way: [peers[way]] * tasks for way in peers}
        times = Times(left_out=left_out)
        right = output_of(session.run(["y"], INPUTS))
        for way, calls in ways.items():
            await time_us(calls, max(tasks, count // 10))
            answer = output_of(await calls[0]())
            if not np.allclose(answer, right, rtol=1e-4, atol=1e-4):
                raise AssertionError(f"{way} answers {answer}, and the session {right}")
        for number in range(setting.round_count):
            for way in list(ways) if number % 2 else reversed(ways):
                gc.collect()
                taken_us = await time_us(ways[way], count)
                times.request_us.setdefault(way, []).append(taken_us)
                if tasks == 1:
                    latency_us = await p50_us(ways[way][0], count // 4 or 1)
                    times.p50_us.setdefault(way, []).append(latency_us)
            taken_us = session_us(session, count)
            times.request_us.setdefault(FLOOR, []).append(taken_us)
    return times


def session_us(session: Any, request_count: int) -> float:
    began_s = time.perf_counter()
    for _ in range(request_count):
        session.run(["y"], INPUTS)
    return (time.perf_counter() - began_s) / request_count * 1e6


@contextmanager
def loaded(model: bytes) -> Iterator[dict[str, aioinfer.ExecutableNetwork]]:
    """Load the model on each device, as it comes and with every run on a worker."""
    with aioinfer.Core() as core, ExitStack() as stack:
        yield {
            device + suffix: stack.enter_context(core.load_network(model, device, config | more))
            for device, config in CONFIGS.items()
            for suffix, more in (("", {}), (HOP, {"INLINE_THRESHOLD_US": 0}))
        }


def rows_of(times: Times, setting: Setting) -> list[Row]:
    """Sum up the rounds, a row for each way that was measured. Pure."""
    rows = []
    for way in WAYS:
        if way not in times.request_us:
            continue
        latencies = times.p50_us.get(way)
        rows.append(
            Row(
                loop=setting.loop,
                task_count=setting.task_count,
                way=way,
                request_us=median(times.request_us[way]),
                p50_us=median(latencies) if latencies else None,
                ratios=ratios_of(way, times.request_us),
                p50_ratios=ratios_of(way, times.p50_us),
            )
        )
    return rows


def ratios_of(way: str, measured: Mapping[str, list[float]]) -> dict[str, float]:
    """Say how many times cheaper one of ours is than each rival; empty for a peer. Pure."""
    rivals = RIVALS[OURS[way]] if way in OURS and way in measured else ()
    return {
        rival: median(
            theirs / ours for theirs, ours in zip(measured[rival], measured[way], strict=True)
        )
        for rival in rivals
        if rival in measured
    }


def table_of(rows: list[Row]) -> Table:
    """One column for each loop and number of tasks, so that it fits 80 columns."""
    table = Table(title="microseconds per request of a tiny perceptron", box=SIMPLE)
    table.add_column("")
    columns = list(dict.fromkeys((row.loop, row.task_count) for row in rows))
    for loop, tasks in columns:
        title = f"{loop}\n{tasks} task{'s' if tasks > 1 else ''}"
        table.add_column(title, justify="right", no_wrap=True)
    found = {(row.loop, row.task_count, row.way): row for row in rows}

    def add(ways: Iterable[str], text: Callable[[Row], str]) -> None:
        for way in ways:
            of_way = [found.get((*column, way)) for column in columns]
            if any(of_way):
                table.add_row(f"  {way}", *(text(row) if row else "" for row in of_way))

    add(WAYS, lambda row: f"{row.request_us:.1f}")
    table.add_section()
    table.add_row("times the best rival's requests/s")
    add(OURS, lambda row: f"{min(row.ratios.values()):.2f}")
    if any(row.p50_us for row in rows):
        table.add_section()
        table.add_row("median latency of one task")
        add(WAYS, lambda row: f"{row.p50_us:.1f}" if row.p50_us else "")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--loops", nargs="+", default=list(LOOPS), choices=LOOPS)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 64], metavar="COUNT")
    parser.add_argument("--requests", type=int, default=3000, help="of each way in each round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if min(*arguments.tasks, arguments.requests, arguments.rounds) < 1:
        parser.error("--tasks, --requests and --rounds take numbers from 1 on")
    model = perceptron().SerializeToString()
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for loop in arguments.loops:
        for task_count in arguments.tasks:
            setting = Setting(loop, task_count, arguments.requests, arguments.rounds)
            with loaded(model) as networks, asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                times = runner.run(rounds(networks, model, setting))
            rows += rows_of(times, setting)
            left_out |= times.left_out
    console = Console()
    console.print(table_of(rows))
    for way, reason in left_out.items():
        console.print(f"left out: {way}: {reason}")
    wanted = ", ".join(f"{device} {ratio:g} times" for device, ratio in WANTED.items())
    console.print(f"wanted of network.infer at 64 tasks on uvloop: {wanted} the best rival")
    write_rows(
        arguments.json,
        "overhead",
        [row.flat() for row in rows],
        onnxruntime=onnxruntime.__version__,
        requests=arguments.requests,
        rounds=arguments.rounds,
        left_out=left_out,
    )
