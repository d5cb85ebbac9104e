"""OPENCL beside numpy: a matmul, a row of elementwise operators, and a whole network.

    python benchmarks opencl
    python benchmarks opencl --rounds 3

Each is computed by numpy as one would write it, by REFERENCE, whose kernels are numpy's, and by
OPENCL: one request after the other, and with three in flight, so that copies overlap with
computing. All take turns, round by round, in one process. Times are medians of the rounds, ratios
medians of the rounds' ratios: how many times as fast as numpy, or as REFERENCE where there is no
numpy. On a processor OPENCL shares its cores with the host, so this shows what a device costs and
not what a GPU gives.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from networks.maps import draw_images
from networks.vision import mobilenet_v2
from onnx import helper, numpy_helper
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from row_file import write_rows

import aioinfer

Array = npt.NDArray[np.float32]
Run = Callable[[int], Array]
"""Computes a job a number of times, and returns one of the results."""

NUMPY, REFERENCE, OPENCL, IN_FLIGHT = "numpy", "REFERENCE", "OPENCL", "OPENCL, 3 in flight"
WAYS = (NUMPY, REFERENCE, OPENCL, IN_FLIGHT)
REQUESTS = 3
CONFIG = {"PERFORMANCE_HINT": "THROUGHPUT"}
"""In flight at once: as many as OPENCL has slots."""


@dataclass(frozen=True)
class Job:
    """What is computed: a model of one input and one output, and numpy's way if there is one."""

    name: str
    model: onnx.ModelProto
    given: Array
    in_numpy: Callable[[Array], Array] | None = None


@dataclass(frozen=True)
class Row:
    """The time of one run; ``ratio`` is how many times as fast as the job's first way it is."""

    job: str
    way: str
    request_us: float
    ratio: float


def model_of(nodes: list[onnx.NodeProto], given: Array, weights: Mapping[str, Array]) -> Any:
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", given.shape), ("y", None))
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "job", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def matmul(chance: np.random.Generator, length: int = 512) -> Job:
    x, w = (chance.standard_normal((length, length)).astype(np.float32) for _ in range(2))
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], x, {"w": w})
    return Job(f"MatMul {length}x{length}", model, x, lambda x: x @ w)


def elementwise(chance: np.random.Generator, count: int = 1 << 20) -> Job:
    """Give y = tanh(x * scale + shift) * x, which OPENCL computes in one launch."""
    x = chance.standard_normal(count).astype(np.float32)
    scale, shift = np.float32([0.5]), np.float32([0.25])
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["a"]),
        helper.make_node("Add", ["a", "shift"], ["b"]),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("Mul", ["c", "x"], ["y"]),
    ]
    model = model_of(nodes, x, {"scale": scale, "shift": shift})
    return Job(f"4 operators on {count:,}", model, x, lambda x: np.tanh(x * scale + shift) * x)


def network(chance: np.random.Generator, size: int = 64) -> Job:
    image = draw_images(chance, 1, 3, size)
    return Job(f"MobileNetV2 {size}x{size}", mobilenet_v2(size=size), image)


def jobs() -> list[Job]:
    chance = np.random.default_rng(0)
    return [matmul(chance), elementwise(chance), network(chance)]


def one_by_one(call: Callable[[], Array]) -> Run:
    def run(count: int) -> Array:
        for _ in range(count):
            result = call()
        return result

    return run


def in_flight(requests: list[aioinfer.InferRequest], given: Array) -> Run:
    """Keep requests busy in turn, from none in flight to none."""

    def run(count: int) -> Array:
        for number in range(count):
            request = requests[number % len(requests)]
            request.wait()
            request.start_async(given)
        for request in requests:
            request.wait()
        return output_of(request.results)

    return run


def infer(request: aioinfer.InferRequest, given: Array) -> Array:
    return output_of(request.infer_sync(given))


def output_of(results: Mapping[str, Any]) -> Array:
    (result,) = results.values()
    return np.asarray(result)


@contextmanager
def ways_of(job: Job, core: aioinfer.Core) -> Iterator[dict[str, Run]]:
    """Load the job on both devices; the first way is what the others are compared with."""
    given, compute = job.given, job.in_numpy
    with ExitStack() as stack:
        networks = {
            device: stack.enter_context(core.load_network(job.model, device, CONFIG))
            for device in (REFERENCE, OPENCL)
        }
        ways: dict[str, Run] = {}
        if compute is not None:
            ways[NUMPY] = one_by_one(lambda: compute(given))
        for device, loaded in networks.items():
            ways[device] = one_by_one(partial(infer, loaded.create_infer_request(), given))
        requests = [networks[OPENCL].create_infer_request() for _ in range(REQUESTS)]
        ways[IN_FLIGHT] = in_flight(requests, given)
        yield ways


def time_us(run: Run, count: int) -> float:
    """Time a number of runs; microseconds for each."""
    began_s = time.perf_counter()
    run(count)
    return (time.perf_counter() - began_s) / count * 1e6


def measure(job: Job, core: aioinfer.Core, round_count: int, round_s: float) -> list[Row]:
    """Measure all ways in turns; each round of a way takes about ``round_s``."""
    with ways_of(job, core) as ways:
        first, *others = ways
        right = ways[first](REQUESTS)
        for way in others:
            found = ways[way](REQUESTS)
            if not np.allclose(found, right, rtol=1e-3, atol=1e-3):
                raise AssertionError(f"{job.name}: {way} answers {found}, and {first} {right}")
        counts = {
            way: max(1, round(round_s * 1e6 / time_us(run, REQUESTS))) for way, run in ways.items()
        }
        times_us: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(round_count):
            for way in list(ways) if number % 2 else reversed(ways):
                times_us[way].append(time_us(ways[way], counts[way]))
    return rows_of(job.name, times_us)


def rows_of(job: str, times_us: Mapping[str, list[float]]) -> list[Row]:
    """Sum up the rounds; the first way is the one to compare with. Pure."""
    base_us = next(iter(times_us.values()))
    return [
        Row(
            job,
            way,
            median(own_us),
            median(base / own for base, own in zip(base_us, own_us, strict=True)),
        )
        for way, own_us in times_us.items()
    ]


def table_of(rows: list[Row]) -> Table:
    table = Table(title="milliseconds per run (times as fast as numpy or REFERENCE)", box=SIMPLE)
    for title in ("", *WAYS):
        table.add_column(title, justify="right" if title else "left")
    found = {(row.job, row.way): row for row in rows}
    for job in dict.fromkeys(row.job for row in rows):
        cells = [found.get((job, way)) for way in WAYS]
        texts = [f"{row.request_us / 1e3:.2f} ({row.ratio:.2f})" if row else "" for row in cells]
        table.add_row(job, *texts)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--round-ms", type=float, default=200.0, help="of each way")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.round_ms <= 0:
        parser.error("--rounds takes numbers from 1 on, --round-ms what is above 0")
    rows: list[Row] = []
    with aioinfer.Core() as core:
        device = core.get_metric(OPENCL, "FULL_DEVICE_NAME")
        for job in jobs():
            rows += measure(job, core, arguments.rounds, arguments.round_ms / 1e3)
    Console().print(table_of(rows))
    Console().print(f"OPENCL is {device}")
    write_rows(
        arguments.json,
        "opencl",
        [asdict(row) for row in rows],
        numpy=np.__version__,
        device=device,
        rounds=arguments.rounds,
    )
