"""What a start costs: load, import and cache, ours beside OpenVINO's and onnxruntime's.

    python benchmarks load --rounds 7
    python benchmarks/run.py load --save

All ways start the same networks in turns, in one process, so that what else the machine does falls
on all alike: until the network is ready, and until its first result, which is where what was put
off is paid. Then in processes of their own, from the start of the interpreter to the first result,
and two at a time, whose memory is looked at. Files are in the system's cache. What counts is the
median of the rounds. ``loading.py`` measures how loading grows with the size of a model.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from models import MODELS
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

from loads.processes import Memory, first_result_s, memory_of_two
from loads.starts import STARTS, Files, prepare

NETWORKS = ("resnet50", "minilm_l6")
OURS = "aioinfer load"
SETTLED_S = 31.0
"""Our cache takes a file's times for its content when it was not written to for half a minute."""


@dataclass(frozen=True)
class Row:
    """One way to one network: the median of the rounds, in milliseconds, and the least."""

    kind: str
    network: str
    way: str
    ready_ms: float
    first_result_ms: float
    least_first_result_ms: float
    ratio: float
    """Of the first result, to that of a load by aioinfer."""


Times = dict[str, list[tuple[float, float]]]


def in_turns(
    ways: Sequence[str], rounds: int, start: Callable[[str], tuple[float, float]]
) -> Times:
    """Measure all ways, each round beginning with another one; the first round does not count."""
    times: Times = {way: [] for way in ways}
    for turn in range(rounds + 1):
        place = turn % len(ways)
        for way in (*ways[place:], *ways[:place]):
            found = start(way)
            if turn:
                times[way].append(found)
    return times


def started_s(way: str, files: Files, inputs: dict[str, np.ndarray]) -> tuple[float, float]:
    """Return the seconds until a network is ready, and until it has given a result."""
    gc.collect()
    began_s = time.perf_counter()
    started = STARTS[way](files)
    ready_s = time.perf_counter() - began_s
    started.infer(inputs)
    first_s = time.perf_counter() - began_s
    started.close()
    return ready_s, first_s


def rows_of(kind: str, network: str, times: Times) -> list[Row]:
    first = {way: [each for _, each in found] for way, found in times.items()}
    median = {way: statistics.median(found) for way, found in first.items()}
    return [
        Row(
            kind,
            network,
            way,
            1e3 * statistics.median(ready for ready, _ in found),
            1e3 * median[way],
            1e3 * min(first[way]),
            median[way] / median.get(OURS, median[way]),
        )
        for way, found in times.items()
    ]


def print_rows(console: Console, rows: Sequence[Row]) -> None:
    for kind in dict.fromkeys(row.kind for row in rows):
        titles = ("network", "way", "ready, ms", "first result, ms", "least", "of our load")
        table = Table(*titles, title=kind, box=SIMPLE)
        for row in (row for row in rows if row.kind == kind):
            times = (row.ready_ms, row.first_result_ms, row.least_first_result_ms)
            table.add_row(row.network, row.way, *(f"{t:.1f}" for t in times), f"{row.ratio:.3f}")
        console.print(table)


def print_memory(console: Console, network: str, found: Sequence[Memory]) -> None:
    titles = ("way", "RSS", "PSS", "of files: mapped", "touched, ready", "touched, ran")
    table = Table(*titles, title=f"{network}: each of two processes, MiB", box=SIMPLE)
    for memory in found:
        numbers = [number for number in asdict(memory).values() if isinstance(number, float)]
        table.add_row(memory.way, *(f"{number:.1f}" for number in numbers))
    console.print(table)


def available(files: Files, ways: Sequence[str], console: Console) -> list[str]:
    """Prepare all ways; an engine that is not installed is left out, and said."""
    found = []
    for way in ways:
        try:
            prepare(way, files)
        except ImportError as error:
            console.print(f"{way} is left out: {error}")
        else:
            found.append(way)
    return found


def measured(
    network: str, folder: Path, ways: Sequence[str], rounds: int, console: Console
) -> tuple[list[Row], list[Memory]]:
    """Measure all ways to one network, whose model is in the folder."""
    files = Files(str(folder / "model.onnx"), str(folder / "made"))
    Path(files.folder).mkdir()
    inputs = MODELS[network].inputs(np.random.default_rng(0), 1)
    kept = folder / "inputs.npz"
    np.savez(kept, **inputs)
    ways = available(files, ways, console)

    def in_new_process(way: str) -> tuple[float, float]:
        found = first_result_s(way, files, kept)
        return found, found

    here = in_turns(ways, rounds, lambda way: started_s(way, files, inputs))
    new = in_turns(ways, rounds, in_new_process)
    rows = [*rows_of("in one process", network, here), *rows_of("new process", network, new)]
    return rows, [memory_of_two(way, files, kept) for way in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", default=[*NETWORKS], metavar="NETWORK")
    parser.add_argument("--rounds", type=int, default=5, help="of each way (5)")
    parser.add_argument("--ways", nargs="+", default=[*STARTS], metavar="WAY", help="(all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    arguments = parser.parse_args()
    if set(arguments.networks) - set(MODELS) or set(arguments.ways) - set(STARTS):
        parser.error(f"networks are {[*MODELS]}, ways are {[*STARTS]}")
    if arguments.rounds < 1:
        parser.error("one round is the least")
    console, rows, shared = Console(), [], []
    with tempfile.TemporaryDirectory() as name:
        folders = {network: Path(name, network) for network in arguments.networks}
        for network, folder in folders.items():
            folder.mkdir()
            onnx.save(MODELS[network].build(), folder / "model.onnx")
        time.sleep(SETTLED_S)
        for network, folder in folders.items():
            found, memory = measured(network, folder, arguments.ways, arguments.rounds, console)
            rows += found
            print_memory(console, network, memory)
            shared += [{"kind": "memory", "network": network, **asdict(each)} for each in memory]
    print_rows(console, rows)
    write_rows(arguments.json, "load", [*map(asdict, rows), *shared])
