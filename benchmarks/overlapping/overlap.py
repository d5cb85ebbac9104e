"""Overlap: how much of the slowest stage's time a pipeline uses, and what its hops cost one alone.

    python benchmarks overlap
    python benchmarks overlap --series timer hetero --ms 0.2 --rounds 3

Real requests, with inputs and outputs, and spans recorded as always, go through pipelines whose
stages each have a thread of their own. A stage waits on a timer without the GIL; in the series
``native`` two stages compute. Networks of 2 to 5 stages are one device's. ``hetero`` is a line over
two devices; in ``diamond`` two devices work side by side, between a node before and one after,
which take no time. The bound is what the slowest stage allows, by its service time as measured
inside the stage, in the same moments. ``overlap`` is the throughput over that bound, ``alone`` the
latency of a request by itself less the service times on its way. Both are medians of the rounds, in
which aioinfer (``await request.infer`` on uvloop, in as many tasks as the network says are best)
and ten lines of threads and queues take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import onnx
import uvloop
from onnx import helper
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer
from overlapping.device import TimedPlugin, Work, computing, sleep_exactly, waiting
from overlapping.figures import (
    Needs,
    TooShortError,
    alone_ms,
    longest_path,
    overlap,
    slowest_ms,
)
from overlapping.ways import Ours, Threads, Way

OURS, THREADS = "aioinfer", "queues"
WARM_UP = 0.25  # of a turn
ALONE_COUNT = 40
DEVICE_COUNT = 3
DIAMOND: Needs = {"a": ["x"], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
WANTED_OVERLAP = {2.0: 0.97, 0.2: 0.90}
"""By the milliseconds of a stage."""
WANTED_ALONE_MS = 0.06
WANTED_HOP_MS = 0.03  # more, for each hand-over after the first


@dataclass(frozen=True)
class Case:
    """A pipeline: its nodes, where they run, how long each takes, and in what way."""

    series: str
    needs: Needs
    stage_ms: float
    device: str = "TIMED"
    affinity: Mapping[str, str] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    """Nodes that take no time of their own."""
    is_native: bool = False

    @property
    def wanted_alone_ms(self) -> float:
        return WANTED_ALONE_MS + WANTED_HOP_MS * (len(longest_path(self.needs)) - 1)


@dataclass(frozen=True)
class Row:
    """What one way made of a case; times in milliseconds."""

    series: str
    stage_count: int
    stage: str
    """How long each takes, such as "2 ms"; text, because it names the row."""
    way: str
    service_ms: float
    overlap: float
    wanted_overlap: float | None
    alone_ms: float
    wanted_alone: float


@dataclass
class Figures:
    """A way's numbers, one for each round."""

    service_ms: list[float] = field(default_factory=list)
    overlap: list[float] = field(default_factory=list)
    alone_ms: list[float] = field(default_factory=list)


def chain(count: int) -> Needs:
    return {f"n{index}": [f"n{index - 1}" if index else "x"] for index in range(count)}


def series_of(stage_ms: float) -> dict[str, list[Case]]:
    """List the cases by series; each stage takes so long."""
    line = {"n0": "TIMED.0", "n1": "TIMED.1"}
    sides = {"a": "TIMED.2", "b": "TIMED.0", "c": "TIMED.1", "d": "TIMED.2"}
    two, three = "HETERO:TIMED.0,TIMED.1", "HETERO:TIMED.0,TIMED.1,TIMED.2"
    return {
        "timer": [Case("timer", chain(count), stage_ms) for count in (2, 3, 4, 5)],
        "native": [Case("native", chain(2), stage_ms, is_native=True)],
        "hetero": [Case("hetero", chain(2), stage_ms, two, line)],
        "diamond": [Case("diamond", DIAMOND, stage_ms, three, sides, frozenset("ad"))],
    }


def model_of(needs: Needs) -> onnx.ModelProto:
    """Make a model of Relus, and Adds where two values meet; the last node makes the output."""
    nodes = [
        helper.make_node("Add" if len(sources) == 2 else "Relu", list(sources), [name], name)
        for name, sources in needs.items()
    ]
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 16])
        for name in ("x", list(needs)[-1])
    )
    graph = helper.make_graph(nodes, "pipeline", [x], [y])
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def works_of(case: Case) -> dict[str, Work]:
    """Make the work of each node; those that compute have their own memory."""
    make = computing if case.is_native else waiting
    return {
        name: Work(
            waiting(0) if name in case.idle else make(case.stage_ms / 1e3),
            "Add" if len(sources) == 2 else "Relu",
        )
        for name, sources in case.needs.items()
    }


Works = Mapping[str, Work]


@contextmanager
def ways_of(case: Case) -> Iterator[dict[str, tuple[Way, Works]]]:
    """Set up both ways, each with works of its own."""
    ours, theirs = works_of(case), works_of(case)
    threads = Threads(theirs, case.needs)
    try:
        with (
            aioinfer.Core() as core,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            core.register_plugin(
                "TIMED", lambda core, name: TimedPlugin(core, name, ours, DEVICE_COUNT)
            )
            config = {"AFFINITY": dict(case.affinity)} if case.affinity else {}
            with core.load_network(model_of(case.needs), case.device, config) as network:
                yield {OURS: (Ours(network, runner), ours), THREADS: (threads, theirs)}
    finally:
        threads.close()


def measure(case: Case, round_count: int, seconds: float) -> list[Row]:
    found = {OURS: Figures(), THREADS: Figures()}
    with ways_of(case) as ways:
        for way, _ in ways.values():
            way.fill(seconds * WARM_UP)
        for number in range(round_count):
            for name in list(ways) if number % 2 else reversed(ways):
                take_turn(*ways[name], case, seconds, found[name])
    return [
        Row(
            series=case.series,
            stage_count=len(case.needs) - len(case.idle),
            stage=f"{case.stage_ms:g} ms",
            way=name,
            service_ms=median(figures.service_ms),
            overlap=median(figures.overlap),
            wanted_overlap=WANTED_OVERLAP.get(case.stage_ms),
            alone_ms=median(figures.alone_ms),
            wanted_alone=case.wanted_alone_ms,
        )
        for name, figures in found.items()
    ]


def take_turn(way: Way, works: Works, case: Case, seconds: float, figures: Figures) -> None:
    """Fill the pipeline, then send requests alone, and note a number of each."""
    gc.collect()
    for work in works.values():
        work.services_ns.clear()
    began_ns = time.perf_counter_ns()
    ends_ns = way.fill(seconds)
    services = {name: list(work.services_ns) for name, work in works.items()}
    window_ns = (began_ns + round(seconds * WARM_UP * 1e9), began_ns + round(seconds * 1e9))
    figures.overlap.append(overlap(ends_ns, services, *window_ns))
    figures.service_ms.append(slowest_ms(services, *window_ns))
    for work in works.values():
        work.services_ns.clear()
    latencies_ns = way.alone(ALONE_COUNT)
    services = {name: list(work.services_ns) for name, work in works.items()}
    figures.alone_ms.append(alone_ms(latencies_ns, services, case.needs))


def table_of(rows: list[Row]) -> Table:
    table = Table(title="overlap of stages, and the cost of a request alone", box=SIMPLE)
    for title in ("stages", "way"):
        table.add_column(title, no_wrap=True)
    for title in ("ms each", "overlap", "wanted", "alone", "wanted"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.series} {row.stage_count} x {row.stage}",
            row.way,
            f"{row.service_ms:.3f}",
            f"{row.overlap:.3f}",
            "" if row.wanted_overlap is None else f"{row.wanted_overlap:.2f}",
            f"{row.alone_ms:.3f}",
            f"{row.wanted_alone:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    known = list(series_of(1.0))
    parser.add_argument("--series", nargs="+", default=known, choices=known)
    parser.add_argument("--ms", type=float, nargs="+", default=[2.0, 0.2], help="of a stage")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or min(*arguments.ms, arguments.seconds) <= 0:
        parser.error("--rounds takes numbers from 1 on, --ms and --seconds numbers above 0")
    sleep_exactly()
    rows: list[Row] = []
    try:
        for stage_ms in arguments.ms:
            for series in arguments.series:
                for case in series_of(stage_ms)[series]:
                    rows += measure(case, arguments.rounds, arguments.seconds)
    except TooShortError as error:
        parser.exit(1, f"{parser.prog}: {error}\n")
    Console().print(table_of(rows))
    write_rows(
        arguments.json,
        "overlap",
        [asdict(row) for row in rows],
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )
