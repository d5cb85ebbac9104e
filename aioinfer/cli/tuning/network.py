"""Networks of a search: pinned to their shapes, run once, and measured in slices of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...executors import allowed_cpus
from ...runtime.graph import Model
from ...runtime.network.executable_network import ExecutableNetwork
from ...runtime.properties.properties import INFERENCE_NUM_THREADS, NUM_STREAMS
from ...runtime.tensors.tensor import ports_of
from ..benchmarking.measure import (
    AsyncRequest,
    Limits,
    Measurement,
    measure_async,
    run_on_event_loop,
)
from ..benchmarking.percentiles import summarize, throughput_per_s
from ..inputs import InputSets, random_inputs
from ..shapes import ChosenShapes, choose_shapes
from .report import Found
from .search import Choice, Settled, Slice

__all__ = ["Loaded", "is_pinned", "run_first", "settled_of", "shapes_of", "thread_count"]

Shapes = Mapping[str, tuple[int, ...]]


@dataclass
class Loaded:
    """A network with what is needed to measure it."""

    found: Found
    network: ExecutableNetwork
    inputs: InputSets

    def measure(self, seconds: float) -> Slice:
        """Keep its requests in flight for so long."""
        network, count = self.network, self.found.settled.requests
        requests: Sequence[AsyncRequest] = (
            [network] * count  # calls of tasks, which share runs from the start
            if self.found.choice.joined_rows > 1
            else [network.create_infer_request() for _ in range(count)]
        )
        measurement = Measurement(Limits(None, seconds))
        run_on_event_loop(partial(measure_async, requests, self.inputs, measurement))
        latency = summarize(measurement.latencies_ms, 90)
        assert latency is not None
        rate = throughput_per_s(measurement.count, self.found.choice.batch, measurement.duration_s)
        return Slice(rate, latency.p50_ms, latency.p90_ms)


def shapes_of(model: Model, choice: Choice, asked: Shapes, batch: int | None) -> ChosenShapes:
    """Choose the shapes of all inputs for a choice; ``asked`` and ``batch`` are the caller's."""
    is_batched = choice.batch > 1 or batch is not None
    return choose_shapes(ports_of(model.inputs), asked, choice.batch if is_batched else None)


def is_pinned(model: Model, pinned: Model) -> bool:
    """True if the second has lengths where the first is open."""
    pairs = zip(model.inputs, pinned.inputs, strict=True)
    return any(before.type != after.type for before, after in pairs)


def settled_of(network: ExecutableNetwork, choice: Choice, like: Settled | None = None) -> Settled:
    """Return the numbers that a network has.

    ``like``: those of one that has as many streams and threads where the choice says nothing, for
    one on BATCH, which has none of its own.
    """
    requests = choice.requests or network.optimal_request_count
    if like is not None and choice.joined_rows > 1:
        return Settled(choice.streams or like.streams, choice.threads or like.threads, requests)
    streams = max(1, network.config.value_or_default(NUM_STREAMS))
    return Settled(streams, thread_count(network), requests)


def run_first(network: ExecutableNetwork, found: Found, seed: int) -> Loaded:
    """Warm a network up and run it once on random inputs, before it is measured."""
    shapes, rows = found.shapes, found.choice.joined_rows
    inputs = random_inputs(network.inputs, shapes, seed)
    loaded = Loaded(found, network, InputSets({name: [value] for name, value in inputs.items()}))
    if rows > 1:
        network.warm_up([shapes, {name: (rows, *shape[1:]) for name, shape in shapes.items()}])
    else:
        network.warm_up()
    network.create_infer_request().infer_sync(loaded.inputs.at(0))
    return loaded


def thread_count(network: ExecutableNetwork) -> int:
    """Return how many threads all its streams may compute with."""
    return network.config.value_or_default(INFERENCE_NUM_THREADS) or allowed_cpus().count
