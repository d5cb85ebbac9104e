"""Single uint8 images for ResNet-50, awaited from one process, unbatched: requests/s and latency.

    python benchmarks/gpu/async_requests.py

The graph starts from an image as a camera gives it, (1, 224, 224, 3) in uint8, and normalises it on
the device. So many tasks on one uvloop await one request after the other; the loop's share is what
its thread uses of a core.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import onnx
import uvloop
from measuring import Settings, percentile, rotated, run_benchmark
from models import MODELS
from onnx import TensorProto, helper, numpy_helper
from predictions import ASYNC_P50_MS, ASYNC_REQUESTS_PER_S
from reporting import Report

import aioinfer
from aioinfer.errors import AioInferError

NAME, SIZE = "resnet50", 224
TASKS = (1, 8, 32, 128)
BUSY = 8
"""From this number on, the rate is what is wanted."""
IMAGES = 256
WARM_UP = 0.2
MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class Turn:
    """What some tasks reached in a stretch of time."""

    per_s: float
    p50_ms: float
    p99_ms: float
    loop_share: float


def from_uint8(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let a model of one float32 image, (1, 3, size, size), start from (1, size, size, 3) uint8."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    (image,) = made.graph.input
    name, dims = image.name, [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    batch, channels, height, width = dims
    nodes = [
        helper.make_node("Cast", ["pixels"], ["pixels_float"], "to_float", to=TensorProto.FLOAT),
        helper.make_node("Sub", ["pixels_float", "pixels_mean"], ["pixels_centred"], "centre"),
        helper.make_node("Div", ["pixels_centred", "pixels_deviation"], ["pixels_scaled"], "scale"),
        helper.make_node("Transpose", ["pixels_scaled"], [name], "to_nchw", perm=[0, 3, 1, 2]),
    ]
    kept = list(made.graph.node)
    del made.graph.node[:]
    made.graph.node.extend([*nodes, *kept])
    for constant, values in (("pixels_mean", MEAN), ("pixels_deviation", DEVIATION)):
        made.graph.initializer.append(numpy_helper.from_array(np.float32(values), constant))
    given = helper.make_tensor_value_info(
        "pixels", TensorProto.UINT8, [batch, height, width, channels]
    )
    del made.graph.input[:]
    made.graph.input.append(given)
    return made


async def turn(
    requests: Sequence[aioinfer.InferRequest], images: Iterator[Any], seconds: float
) -> Turn:
    """Let each request be awaited again and again for so long; counts what ends after a warm-up."""
    began_s = time.perf_counter()
    from_s, until_s = began_s + WARM_UP * seconds, began_s + seconds
    ends: list[tuple[float, float]] = []

    async def work(request: aioinfer.InferRequest) -> None:
        while (asked_s := time.perf_counter()) < until_s:
            await request.infer({"pixels": next(images)})
            ended_s = time.perf_counter()
            ends.append((ended_s, ended_s - asked_s))

    used_s = time.thread_time()
    await asyncio.gather(*map(work, requests))
    share = (time.thread_time() - used_s) / (time.perf_counter() - began_s)
    return summed_up(ends, from_s, until_s, share)


async def once(requests: Sequence[aioinfer.InferRequest], images: Iterator[Any]) -> None:
    """Await each request once, so that every slot has its memory."""
    await asyncio.gather(*(request.infer({"pixels": next(images)}) for request in requests))


def summed_up(
    ends: Sequence[tuple[float, float]], from_s: float, until_s: float, share: float
) -> Turn:
    """Sum up requests by when they ended and how long they took, in seconds. Pure."""
    latencies_s = [latency_s for ended_s, latency_s in ends if from_s <= ended_s <= until_s]
    if not latencies_s:
        raise ValueError("no request ended in time: measure longer")
    return Turn(
        len(latencies_s) / (until_s - from_s),
        percentile(latencies_s, 0.50) * 1e3,
        percentile(latencies_s, 0.99) * 1e3,
        share,
    )


def measure(report: Report, settings: Settings) -> None:
    model = from_uint8(MODELS[NAME].build())
    chance = np.random.default_rng(0)
    images = rotated(list(chance.integers(0, 256, (IMAGES, 1, SIZE, SIZE, 3), np.uint8)))
    for hint in ("THROUGHPUT", "LATENCY"):
        config = {"PERFORMANCE_HINT": hint, "INFERENCE_PRECISION_HINT": "f16"}
        try:
            with (
                aioinfer.Core() as core,
                core.load_network(model, settings.device, config) as network,
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                measure_network(report, settings, network, images, runner, hint)
        except AioInferError as error:
            report.refuse(hint, error)


def measure_network(
    report: Report,
    settings: Settings,
    network: aioinfer.ExecutableNetwork,
    images: Iterator[Any],
    runner: asyncio.Runner,
    hint: str,
) -> None:
    requests = [network.create_infer_request() for _ in range(max(TASKS))]
    rounds: dict[int, list[Turn]] = {count: [] for count in TASKS}
    seconds = max(0.5, 5 * settings.round_s)
    runner.run(once(requests, images))
    for number in range(settings.rounds):
        if not settings.has_time(len(TASKS) * seconds) and rounds[TASKS[0]]:
            break
        for count in TASKS if number % 2 else reversed(TASKS):
            gc.collect()
            rounds[count].append(runner.run(turn(requests[:count], images, seconds)))
    for count, turns in rounds.items():
        title = f"{hint}, {count} in flight"
        wanted = ASYNC_REQUESTS_PER_S if count >= BUSY and hint == "THROUGHPUT" else None
        report.add(title, median(one.per_s for one in turns), "requests/s", wanted=wanted)
        alone = ASYNC_P50_MS if count == 1 and hint == "LATENCY" else None
        report.add(f"{title}, p50", median(one.p50_ms for one in turns), "ms", wanted=alone)
        report.add(f"{title}, p99", median(one.p99_ms for one in turns), "ms")
        share = median(one.loop_share for one in turns)
        report.add(f"{title}, the loop's share", share * 100, "% of a core")


if __name__ == "__main__":
    run_benchmark("async_requests", measure, __doc__)
