"""What a new shape costs: models as PyTorch exports them, one request of each shape after another.

    python benchmarks new_shapes                     # exports the models, with the extra `zoo`
    python benchmarks new_shapes FOLDER --json FILE  # takes those of a folder

Each model runs on one compute thread of each engine, in turns, with shapes that neither has seen.
What a shape costs is the processor time of its first run less that of its next ones, so a busy
machine shows less of itself. onnxruntime plans little per shape; ours compiles the first, traces
the second, and replays the trace from then on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime
from networks.exported import ARCHITECTURES, export_all
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

Inputs = dict[str, np.ndarray]
Infer = Callable[[Inputs], object]
Shape = tuple[int, ...]

BUILT = Path(__file__).parents[2] / "build" / "exported"
MOST_BATCH = 16
IMAGE_LENGTHS = (64, 128)
TEXT_LENGTHS = (8, 128)
WANTED_MS = 10.0
AGAIN = 2
"""Runs of a shape after its first one."""


@dataclass(frozen=True)
class Row:
    """Milliseconds of processor time that shapes cost when they come first."""

    model: str
    first_ms: float
    second_ms: float
    new_shape_ms: float
    """The median over the shapes after the second."""
    run_ms: float
    """The median of later runs."""
    peer_first_ms: float
    peer_new_shape_ms: float
    peer_run_ms: float


class Shapes:
    """Draws shapes for the open lengths of a model; the same symbol has the same length."""

    def __init__(self, session: onnxruntime.InferenceSession, seed: int = 0) -> None:
        self._ports = [(port.name, port.shape, port.type) for port in session.get_inputs()]
        self._chance = np.random.default_rng(seed)

    def draw(self) -> dict[str, Shape]:
        lengths: dict[object, int] = {}
        found = {}
        for name, shape, _ in self._ports:
            bounds = IMAGE_LENGTHS if len(shape) == 4 else TEXT_LENGTHS
            dims = []
            for axis, dim in enumerate(shape):
                low, high = bounds if axis else (1, MOST_BATCH)
                drawn = int(self._chance.integers(low, high + 1))
                key = dim if isinstance(dim, str) else (name, axis)
                dims.append(dim if isinstance(dim, int) else lengths.setdefault(key, drawn))
            found[name] = tuple(dims)
        return found

    def inputs(self, shapes: dict[str, Shape]) -> Inputs:
        """Give images at unit scale; ones as integers, which are ids and masks alike."""
        kinds = {name: kind for name, _, kind in self._ports}
        return {
            name: self._chance.standard_normal(shape, np.float32)
            if kinds[name] == "tensor(float)"
            else np.ones(shape, np.int64)
            for name, shape in shapes.items()
        }

    def distinct(self, count: int) -> list[Inputs]:
        """Return inputs of a number of different shapes, or of all that there are."""
        seen: dict[tuple[Shape, ...], Inputs] = {}
        for _ in range(20 * count):
            shapes = self.draw()
            if len(seen) < count and tuple(shapes.values()) not in seen:
                seen[tuple(shapes.values())] = self.inputs(shapes)
        return list(seen.values())


def processor_ms(infer: Infer, inputs: Inputs) -> float:
    before_s = time.process_time()
    infer(inputs)
    return (time.process_time() - before_s) * 1e3


def costs(engines: dict[str, Infer], requests: Sequence[Inputs]) -> dict[str, list[list[float]]]:
    """Time each request of each engine, first and again; the engines take turns to go first."""
    times: dict[str, list[list[float]]] = {name: [] for name in engines}
    for number, inputs in enumerate(requests):
        for name in list(engines) if number % 2 else list(reversed(engines)):
            runs = [processor_ms(engines[name], inputs) for _ in range(1 + AGAIN)]
            times[name].append(runs)
    return times


def added(runs: Sequence[Sequence[float]]) -> list[float]:
    """Return what the first run of each shape took more than its next ones."""
    return [first - min(again) for first, *again in runs]


def measure(file: Path, count: int) -> Row:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
    requests = Shapes(session).distinct(count)
    with aioinfer.Core() as core:
        network = core.load_network(str(file), "CPU", {"INFERENCE_NUM_THREADS": 1})
        engines: dict[str, Infer] = {
            "aioinfer": network.create_infer_request().infer_sync,
            "onnxruntime": lambda inputs: session.run(None, inputs),
        }
        times = costs(engines, requests)
    ours, theirs = added(times["aioinfer"]), added(times["onnxruntime"])
    run_ms, peer_run_ms = (
        median(min(again) for _, *again in times[name]) for name in ("aioinfer", "onnxruntime")
    )
    later = ours[2:] or ours[-1:]
    return Row(
        file.stem,
        ours[0],
        ours[1] if len(ours) > 1 else ours[0],
        median(later),
        run_ms,
        theirs[0],
        median(theirs[2:] or theirs[-1:]),
        peer_run_ms,
    )


def table_of(rows: Sequence[Row]) -> Table:
    table = Table(title="ms of processor time that a new shape adds to its first run", box=SIMPLE)
    for title in ("model", "first", "second", "new", "a run", "onnxruntime first", "new", "a run"):
        table.add_column(title, justify="left" if title == "model" else "right")
    for row in rows:
        model, *numbers = asdict(row).values()
        table.add_row(model, *(f"{number:.2f}" for number in numbers))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=BUILT, help="of .onnx files with open lengths"
    )
    parser.add_argument("--shapes", type=int, default=12, help="of each model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if arguments.shapes < 3:
        parser.error("--shapes takes numbers from 3 on")
    console, rows = Console(), []
    if not arguments.folder.exists():
        for line in export_all(ARCHITECTURES, arguments.folder):
            console.print(line)
    files = sorted(arguments.folder.glob("*.onnx"))
    for file in files:
        try:
            rows.append(measure(file, arguments.shapes))
        except Exception as error:  # a model that one of both refuses; the others are measured
            console.print(f"{file.stem}: {error}")
    console.print(table_of(rows))
    if rows:
        ours_ms, theirs_ms = (
            median(getattr(row, name) for row in rows)
            for name in ("new_shape_ms", "peer_new_shape_ms")
        )
        console.print(
            f"median of {len(rows)} models: {ours_ms:.1f} ms, onnxruntime {theirs_ms:.1f}; "
            f"wanted: {WANTED_MS:.0f}"
        )
    write_rows(arguments.json, "new_shapes", [asdict(row) for row in rows])
