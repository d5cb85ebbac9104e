"""A network on the device in several ways: batches, precisions, memory, graphs; one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from measuring import Run, Settings, interleaved, rotated, set_count
from models import MODELS, Inputs
from predictions import Prediction
from reporting import Report

import aioinfer
from aioinfer.errors import AioInferError

__all__ = ["Case", "cases_by_worth", "measure_cases", "with_batch"]

LEAST_IN_FLIGHT = 8
SETUP_S = 20.0
"""What a case may need before it measures: building, loading, uploading."""
DEVICE, HOST, EAGER = "device memory", "with transfers", "without CUDA graphs"
ALONE = "one by one"


@dataclass(frozen=True)
class Case:
    """One batch and precision; ``has_eager``: also without CUDA graphs."""

    batch: int
    precision: str
    has_eager: bool = False


def cases_by_worth(batches: Sequence[int], precisions: Sequence[str]) -> list[Case]:
    """Order cases: the largest batch first, then from the smallest on; for each precision.

    CUDA graphs matter, and are switched off, at batches up to 8. Pure.
    """
    *others, largest = sorted(batches)
    by_worth = [largest, *others]
    return [
        Case(batch, precision, has_eager=batch <= 8)
        for precision in precisions
        for batch in by_worth
    ]


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """Copy a model with a number for its symbolic batch."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in (*fixed.graph.input, *fixed.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "batch":
                dim.dim_value = batch
    return fixed


def measure_cases(
    report: Report,
    settings: Settings,
    name: str,
    cases: Sequence[Case],
    predictions: Mapping[int, Prediction],
    unit: str,
) -> None:
    """Measure a network of the benchmarks; ``unit`` is what its batch is made of, with /s."""
    built = MODELS[name].build(batch="batch")
    for case in cases:
        title = f"batch {case.batch}, {case.precision}"
        if not settings.has_time(SETUP_S):
            report.refuse(title, "left out: no time")
            continue
        try:
            measure_case(report, settings, name, with_batch(built, case.batch), case, predictions)
        except (AioInferError, MemoryError) as error:
            report.refuse(title, error)
    report.facts.update(network=name, unit=unit)


def measure_case(
    report: Report,
    settings: Settings,
    name: str,
    model: onnx.ModelProto,
    case: Case,
    predictions: Mapping[int, Prediction],
) -> None:
    """Measure the ways of one batch and precision in turns."""
    title = f"batch {case.batch}, {case.precision}"
    base = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": case.precision}
    sets = list(draw_sets(MODELS[name].inputs, case.batch))
    with ExitStack() as stack:
        core = stack.enter_context(aioinfer.Core())
        ways: dict[str, Run] = {}

        def load(config: Mapping[str, str]) -> aioinfer.ExecutableNetwork:
            network = core.load_network(model, settings.device, {**base, **config})
            return stack.enter_context(network)

        network = load({})
        add_ways(report, ways, title, network, sets)
        if case.has_eager:
            try:
                eager = load({"CUDA_GRAPHS": "NO"})
                ways[EAGER] = in_flight(requests_of(eager), sets)
            except AioInferError as error:
                report.refuse(f"{title}, {EAGER}", error)
        times_us = interleaved(ways, settings.rounds, settings.round_s)
    predicted = predictions.get(case.batch) if case.precision == "f16" else None
    for way, one_us in times_us.items():
        add_rows(report, f"{title}, {way}", case.batch, one_us, way, predicted)


def add_rows(
    report: Report, what: str, batch: int, one_us: float, way: str, predicted: Prediction | None
) -> None:
    """Note how fast a way is, or how long one batch alone takes."""
    if ALONE in way:
        report.add(what, one_us, "us", predicted.graph_us if predicted else None)
        return
    is_goal = predicted is not None and way == DEVICE
    report.add(
        what,
        batch / one_us * 1e6,
        "/s",
        predicted.per_s if predicted else None,
        predicted.wanted_per_s if is_goal and predicted else None,
    )


def add_ways(
    report: Report,
    ways: dict[str, Run],
    title: str,
    network: aioinfer.ExecutableNetwork,
    sets: Sequence[Inputs],
) -> None:
    """Add the ways of a loaded network: from memory of the device and of the host."""
    ways[HOST] = in_flight(requests_of(network), sets)
    ways[f"{HOST}, {ALONE}"] = in_flight([network.create_infer_request()], sets)
    try:
        on_device = [to_device(inputs) for inputs in sets]
        requests = requests_of(network)
        alone = network.create_infer_request()
        for request in (*requests, alone):
            bind_outputs(request, network, sets[0])
        in_flight([alone], on_device)(1)
    except (AioInferError, ImportError, MemoryError, RuntimeError) as error:
        report.refuse(f"{title}, {DEVICE}", error)
        return
    ways[DEVICE] = in_flight(requests, on_device)
    ways[f"{DEVICE}, {ALONE}"] = in_flight([alone], on_device)


def draw_sets(
    draw: Callable[[np.random.Generator, int], Inputs], batch: int, most_bytes: int = 1 << 30
) -> Iterator[Inputs]:
    """Draw as many sets of inputs as no cache holds, within a bound on their bytes together."""
    chance = np.random.default_rng(0)
    first = draw(chance, batch)
    yield first
    size_bytes = sum(array.nbytes for array in first.values())
    wanted = min(set_count(size_bytes), max(2, most_bytes // size_bytes))
    for _ in range(wanted - 1):
        yield draw(chance, batch)


def requests_of(network: aioinfer.ExecutableNetwork) -> list[aioinfer.InferRequest]:
    """Make as many requests as keep the device busy."""
    count = max(LEAST_IN_FLIGHT, int(network.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")))
    return [network.create_infer_request() for _ in range(count)]


def in_flight(requests: Sequence[aioinfer.InferRequest], sets: Sequence[Any]) -> Run:
    """Keep requests busy in turn, from none in flight to none; one request is one by one."""
    inputs = rotated(sets)

    def run(count: int) -> None:
        for number in range(count):
            request = requests[number % len(requests)]
            request.wait()
            request.start_async(next(inputs))
        for request in requests:
            request.wait()

    return run


def to_device(inputs: Inputs) -> dict[str, Any]:
    """Copy inputs to arrays of CuPy."""
    import cupy

    return {name: cupy.asarray(array) for name, array in inputs.items()}


def bind_outputs(
    request: aioinfer.InferRequest, network: aioinfer.ExecutableNetwork, inputs: Inputs
) -> None:
    """Let a request write its outputs to arrays of CuPy."""
    import cupy

    for name, shape in shapes_of(network, inputs).items():
        request.set_tensor(name, cupy.empty(shape, cupy.float32))


def shapes_of(network: aioinfer.ExecutableNetwork, inputs: Inputs) -> dict[str, tuple[int, ...]]:
    """Run once to see the shapes of the outputs."""
    results = network.create_infer_request().infer_sync(inputs)
    return {name: np.shape(array) for name, array in results.items()}
