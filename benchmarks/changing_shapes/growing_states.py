"""What a step of a decoder costs whose keys and values grow, beside its attention alone.

    python benchmarks growing_states
    python benchmarks growing_states --device HETERO:CPU,REFERENCE --json FILE

One layer of attention joins one row to the past of each head and attends to all of it. ``growing``:
the past is state of the request (STATE). ``attention``: the same matmuls over keys and values of
that length, dense, which nothing joins: what a step has to cost. ``handed on``: the caller gives
the past and gets it back with a row more. Steps of the three take turns, over the same lengths pass
after pass. In the first pass each length is new and its plan is made: ``new length`` is what
that adds. All other times are medians over the passes from the fifth on, in microseconds: runs of
one length are known to be short by then, and stay on this thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnx.parser
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

SIZES = ((2, 8, 100), (8, 64, 500), (12, 64, 200), (12, 64, 2000))
"""Heads, their depth, and the rows of the past at the first step."""
WANTED = 1.15
WARM_UP_PASSES = 4
STATE = {"past_keys": "keys", "past_values": "values"}

Step = Callable[[int], Any]


def decoder(heads: int, depth: int, *, joins: bool) -> onnx.ModelProto:
    """Make a layer of attention, with or without the rows that it joins to the past."""
    width = heads * depth
    past = f"float[1,{heads},past,{depth}]"
    given = "past_keys", "past_values"
    if not joins:
        given = "keys", "values"
    made = f", float[1,{heads},total,{depth}] keys, float[1,{heads},total,{depth}] values"
    join = """
        negative = Neg (rows)
        keys = Concat <axis = 2> (past_keys, rows)
        values = Concat <axis = 2> (past_values, negative)"""
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["" : 21]>
        decoder (float[1,1,{width}] x, {past} {given[0]}, {past} {given[1]})
        => (float[1,1,{width}] y{made if joins else ""})
        <int64[4] heads = {{0, 0, {heads}, {depth}}}, int64[3] flat = {{0, 0, {width}}}> {{
            split = Reshape (x, heads)
            rows = Transpose <perm = [0, 2, 1, 3]> (split){join if joins else ""}
            across = Transpose <perm = [0, 1, 3, 2]> (keys)
            scores = MatMul (rows, across)
            weights = Softmax <axis = -1> (scores)
            mixed = MatMul (weights, values)
            back = Transpose <perm = [0, 2, 1, 3]> (mixed)
            y = Reshape (back, flat)
        }}
    """)


class Contest:
    """The three ways of one size; ``steps`` by name, each called with the number of the step."""

    def __init__(
        self, core: aioinfer.Core, device: str, size: tuple[int, int, int], count: int
    ) -> None:
        heads, depth, self._first = size
        chance = np.random.default_rng(0)
        config = {"PLAN_CACHE_COUNT": 4 * count + 8} if device == "CPU" else {}
        joined, alone = decoder(heads, depth, joins=True), decoder(heads, depth, joins=False)
        networks = [
            core.load_network(joined, device, {**config, "STATE": STATE}),
            core.load_network(alone, device, config),
            core.load_network(joined, device, config),
        ]
        growing, dense, handed = (network.create_infer_request() for network in networks)
        self._request = growing
        self._past = [
            chance.normal(size=(1, heads, self._first, depth)).astype(np.float32) for _ in range(2)
        ]
        self._handed: list[np.ndarray] = []
        x = {"x": chance.normal(size=(1, 1, heads * depth)).astype(np.float32)}
        most = heads * (self._first + count + 1) * depth
        memory = [chance.normal(size=most).astype(np.float32) for _ in range(2)]

        def attend(step: int) -> Any:
            rows = self._first + 1 + step
            keys, values = (
                flat[: heads * rows * depth].reshape(1, heads, rows, depth) for flat in memory
            )
            return dense.infer_sync({**x, "keys": keys, "values": values})

        def hand_on(_step: int) -> Any:
            found = handed.infer_sync({**x, **dict(zip(STATE, self._handed, strict=True))})
            self._handed = [found["keys"], found["values"]]
            return found

        self.steps: dict[str, Step] = {
            "growing": lambda _step: growing.infer_sync(x),
            "attention": attend,
            "handed on": hand_on,
        }

    def begin(self) -> None:
        """Begin with the past of the first step."""
        for state, past in zip(self._request.query_state(), self._past, strict=True):
            state.state = past
        self._handed = list(self._past)


def measure(
    core: aioinfer.Core, device: str, size: tuple[int, int, int], count: int, passes: int
) -> dict[str, Any]:
    contest = Contest(core, device, size, count)
    times: list[dict[str, list[int]]] = []
    for _ in range(passes):
        contest.begin()
        found: dict[str, list[int]] = {name: [] for name in contest.steps}
        for step in range(count):
            for name, run in contest.steps.items():
                started_ns = time.perf_counter_ns()
                run(step)
                found[name].append(time.perf_counter_ns() - started_ns)
        times.append(found)
    later = {
        name: median([one for found in times[WARM_UP_PASSES:] for one in found[name]]) / 1e3
        for name in contest.steps
    }
    heads, depth, length = size
    return {
        "device": device,
        "heads": heads,
        "depth": depth,
        "length": length,
        **{f"{name.replace(' ', '_')}_us": round(took, 1) for name, took in later.items()},
        "ratio": round(later["growing"] / later["attention"], 3),
        "new_length_us": round(median(times[0]["growing"]) / 1e3 - later["growing"], 1),
    }


def table_of(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="µs per step", box=SIMPLE, title_justify="left")
    titles = ("heads", "depth", "length", "growing", "attention", "handed on", "ratio")
    for title in (*titles, "new length"):
        table.add_column(title, justify="right")
    keys = ("heads", "depth", "length", "growing_us", "attention_us", "handed_on_us", "ratio")
    for row in rows:
        table.add_row(*(str(row[key]) for key in (*keys, "new_length_us")))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="CPU")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    options = parser.parse_args()
    if options.steps < 1 or options.passes <= WARM_UP_PASSES:
        parser.error(f"--steps wants 1 at least, --passes {WARM_UP_PASSES + 1}")
    with aioinfer.Core() as core:
        rows = [
            measure(core, options.device, size, options.steps, options.passes) for size in SIZES
        ]
    console = Console()
    console.print(table_of(rows))
    console.print(f"ratio: growing to attention; wanted: {WANTED} at most")
    write_rows(options.json, "growing_states", rows, wanted=WANTED)
