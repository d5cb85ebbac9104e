"""CUDA graphs replayed: bitwise equal every time, and what they save against single launches.

    python benchmarks/gpu/graph_replay.py

First a graph of CuPy's own: copies around a kernel, replayed ten thousand times. Then
ResNet-50 and MobileNetV2 at batch 1 with and without CUDA graphs: the time of a run alone, and what
the host takes to enqueue its computing, as the trace has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from measuring import Settings, cupy_reason, interleaved, run_benchmark
from models import MODELS
from network_runs import in_flight
from predictions import GRAPH_LAUNCH_US, RESNET50
from raw_cuda import add_one, captured
from reporting import Report
from trace_lanes import stage_of

import aioinfer
from aioinfer.errors import AioInferError

REPLAYS, NETWORK_REPLAYS = 10_000, 1000
SIDE = 256
NAN_BYTE = 0xFF
DEVICE_TO_DEVICE = 3  # cudaMemcpyKind
NETWORKS = ("resnet50", "mobilenet_v2")
EAGER_US = 450.0
"""Predicted of the host for 56 single launches: 340 to 560 us."""


def measure(report: Report, settings: Settings) -> None:
    measure_own(report)
    for name in NETWORKS:
        if not settings.has_time(15.0):
            report.refuse(name, "left out: no time")
            continue
        try:
            measure_network(report, settings, name)
        except AioInferError as error:
            report.refuse(name, error)


def measure_own(report: Report) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    a = cupy.asarray(np.random.default_rng(0).standard_normal((SIDE, SIDE), "f"))
    y, kept = cupy.empty_like(a), cupy.empty_like(a)
    cupy.cuda.get_current_stream().synchronize()  # which the other one does not wait for
    kernel, copy = add_one(), cupy.cuda.runtime.memcpyAsync

    def enqueue() -> None:
        with stream:
            copy(y.data.ptr, a.data.ptr, y.nbytes, DEVICE_TO_DEVICE, stream.ptr)
            kernel((SIDE,), (SIDE,), (y, np.int32(y.size)))
            copy(kept.data.ptr, y.data.ptr, y.nbytes, DEVICE_TO_DEVICE, stream.ptr)

    graph = captured(stream, enqueue)
    graph.launch(stream)
    stream.synchronize()
    wanted, different, kept_memory = kept.copy(), 0, kept.data
    cupy.cuda.get_current_stream().synchronize()
    for number in range(REPLAYS):
        if number % 100 == 0:
            kept_memory.memset_async(NAN_BYTE, kept.nbytes, stream)
        graph.launch(stream)
        if number % 100 == 99:
            stream.synchronize()
            different += not bool((kept == wanted).all())  # on the null stream, once all is done
    report.add("own graph, looks of 100 that differ", float(different), "of 100", wanted=0.0)


def measure_network(report: Report, settings: Settings, name: str) -> None:
    model = MODELS[name].build()
    inputs = MODELS[name].inputs(np.random.default_rng(0), 1)
    half = {"INFERENCE_PRECISION_HINT": "f16"}
    with (
        aioinfer.Core() as core,
        core.load_network(model, settings.device, half) as replayed,
        core.load_network(model, settings.device, {**half, "CUDA_GRAPHS": "NO"}) as eager,
    ):
        networks = {"replayed": replayed, "eager": eager}
        ways = {
            way: in_flight([network.create_infer_request()], [inputs])
            for way, network in networks.items()
        }
        predicted = RESNET50[1].graph_us if name == "resnet50" else None
        for way, taken_us in interleaved(ways, settings.rounds, settings.round_s).items():
            alone = predicted if way == "replayed" else None
            report.add(f"{name}, {way}, a run alone", taken_us, "us", alone)
        for way, host_us in (("replayed", GRAPH_LAUNCH_US), ("eager", EAGER_US)):
            network = networks[way]
            taken_us = enqueue_us(network.trace(), network.device)
            report.add(f"{name}, {way}, host enqueues", taken_us, "us", host_us)
        report.add(
            f"{name}, replays of {NETWORK_REPLAYS} that differ",
            float(different_count(replayed, inputs)),
            "runs",
            wanted=0.0,
        )


def enqueue_us(spans: Sequence[Any], device: str) -> float:
    """Give the median time of the host for enqueueing a run's computing. Pure."""
    return median(
        (span.ended_ns - span.started_ns) / 1e3
        for span in spans
        if stage_of(span.lane, device, on_host=True) == "compute"
    )


def different_count(network: aioinfer.ExecutableNetwork, inputs: Any) -> int:
    """Count the runs whose results differ from the first one's in a bit."""
    request = network.create_infer_request()
    first = {name: array.tobytes() for name, array in request.infer_sync(inputs).items()}
    return sum(
        any(array.tobytes() != first[name] for name, array in request.infer_sync(inputs).items())
        for _ in range(NETWORK_REPLAYS)
    )


if __name__ == "__main__":
    run_benchmark("graph_replay", measure, __doc__, cupy_reason)
