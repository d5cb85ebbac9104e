"""What new lengths cost: requests of random lengths through networks of open shapes.

    python benchmarks open_lengths
    python benchmarks open_lengths --json FILE

One network of each engine, one compute thread. The same sequence of lengths goes through all of
them, request by request in turns, pass after pass: the first pass meets nearly every length for the
first time, and its plans are made there. Means in milliseconds, because what a service notices of a
compilation is in no median.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, median

import numpy as np
import onnx
import onnxruntime
from networks.language import minilm_l6
from networks.vision import resnet50
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

Inputs = dict[str, np.ndarray]
Infer = Callable[[Inputs], object]


@dataclass(frozen=True)
class Row:
    """Milliseconds of a request in each pass, and onnxruntime's over ours: above 1 is better."""

    model: str
    first_ms: float
    later_ms: float
    peer_first_ms: float
    peer_later_ms: float
    first_ratio: float
    later_ratio: float
    new_length_ms: float
    """What a length costs when it comes for the first time: the median over the lengths."""


def sentences(chance: np.random.Generator, length: int) -> Inputs:
    shape = (1, length)
    return {
        "input_ids": chance.integers(0, 30_522, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }


def images(chance: np.random.Generator, batch: int) -> Inputs:
    return {"image": chance.standard_normal((batch, 3, 224, 224), np.float32)}


def passes(
    engines: dict[str, Infer], requests: list[Inputs], count: int
) -> dict[str, list[list[float]]]:
    """Time each request of each pass on each engine; the engines take turns to go first."""
    times: dict[str, list[list[float]]] = {name: [] for name in engines}
    for _ in range(count):
        for found in times.values():
            found.append([])
        for number, inputs in enumerate(requests):
            for name in list(engines) if number % 2 else list(reversed(engines)):
                before_s = time.perf_counter()
                engines[name](inputs)
                times[name][-1].append((time.perf_counter() - before_s) * 1e3)
    return times


def measure(name: str, proto: onnx.ModelProto, requests: list[Inputs], pass_count: int) -> Row:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder, aioinfer.Core() as core:
        file = str(Path(folder, f"{name}.onnx"))
        onnx.save(proto, file)
        session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
        network = core.load_network(file, "CPU", {"INFERENCE_NUM_THREADS": 1})
        request = network.create_infer_request()
        engines: dict[str, Infer] = {
            "aioinfer": request.infer_sync,
            "onnxruntime": lambda inputs: session.run(None, inputs),
        }
        times = passes(engines, requests, pass_count)
    ours, theirs = times["aioinfer"], times["onnxruntime"]
    later = [median(column) for column in zip(*ours[1:], strict=True)]
    seen: set[tuple[tuple[int, ...], ...]] = set()
    added = []
    for inputs, first, usual in zip(requests, ours[0], later, strict=True):
        signature = tuple(array.shape for array in inputs.values())
        if signature not in seen:
            seen.add(signature)
            added.append(first - usual)
    first_ms, peer_first_ms = fmean(ours[0]), fmean(theirs[0])
    later_ms, peer_later_ms = (fmean(chain.from_iterable(found[1:])) for found in (ours, theirs))
    return Row(
        name,
        first_ms,
        later_ms,
        peer_first_ms,
        peer_later_ms,
        peer_first_ms / first_ms,
        peer_later_ms / later_ms,
        median(added),
    )


def table_of(rows: list[Row]) -> Table:
    table = Table(title="ms per request of random lengths, one compute thread", box=SIMPLE)
    for title in ("model", "first pass", "later", "a new length"):
        table.add_column(title, justify="left" if title == "model" else "right")
    for title in ("onnxruntime first", "later", "ratio first", "later"):
        table.add_column(title, justify="right")
    for row in rows:
        numbers = (row.first_ms, row.later_ms, row.new_length_ms, row.peer_first_ms)
        ratios = (row.peer_later_ms, row.first_ratio, row.later_ratio)
        table.add_row(row.model, *(f"{number:.2f}" for number in (*numbers, *ratios)))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=200, help="of the language model")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if arguments.requests < 1 or arguments.passes < 2:
        parser.error("--requests takes numbers from 1 on, --passes numbers from 2 on")
    chance = np.random.default_rng(0)
    lengths = chance.integers(8, 129, arguments.requests)
    texts = [sentences(chance, int(length)) for length in lengths]
    batches = [images(chance, batch) for batch in range(1, 2 + arguments.requests // 40)]
    rows = [
        measure("minilm_l6", minilm_l6(1, sequence="sequence"), texts, arguments.passes),
        measure("resnet50", resnet50("batch"), batches, arguments.passes),
    ]
    console = Console()
    console.print(table_of(rows))
    console.print("a ratio is onnxruntime's time over ours; wanted: 0.91 first, 1.00 later")
    write_rows(arguments.json, "open_lengths", [asdict(row) for row in rows])
