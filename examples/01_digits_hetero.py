"""Classify handwritten digits from 64 concurrent tasks: on one device, then split over two.

First the fastest way, the whole network on CPU. Then the same network split so that two devices run
several pieces of it each: every request passes through all pieces, and many requests are under way
at once, so both devices work at the same time. Where CPU is not installed, REFERENCE stands in.
Exit code 1 if the accuracy is not what the model is known to reach.

Run it with ``make demo``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import aioinfer

DIGITS = Path(__file__).parent / "digits"
FIRST_NODES = ["scale", "conv1", "relu1", "conv3", "norm3", "flatten", "fc1", "relu4", "fc2"]
SECOND_NODES = ["conv2", "relu2", "pool1", "add3", "relu3"]
TASK_COUNT = 64
EXPECTED_ACCURACY = 0.97


async def classify(network: aioinfer.ExecutableNetwork, images: np.ndarray) -> np.ndarray:
    """Give each image to whichever of the tasks is free; returns the predicted digits."""
    predicted = np.full(len(images), -1)
    indices = iter(range(len(images)))

    async def work() -> None:
        request = network.create_infer_request()
        for index in indices:
            outputs = await request.infer({"image": images[index : index + 1]})
            predicted[index] = outputs["logits"].argmax()
            progress.advance(bar)

    with Progress(transient=True) as progress:
        bar = progress.add_task("classifying", total=len(images))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TASK_COUNT):
                tasks.create_task(work())
    return predicted


async def show(core: aioinfer.Core, device: str, config: dict[str, Any]) -> float:
    """Classify the held-out images on a device, print how, and return the accuracy."""
    console = Console()
    data = np.load(DIGITS / "digits_heldout.npz")
    async with await core.load_network_async(DIGITS / "digits.onnx", device, config) as network:
        await network.warm_up_async({"image": (1, 1, 8, 8)})

        started_s = time.perf_counter()
        predicted = await classify(network, data["images"])
        elapsed_s = time.perf_counter() - started_s

        if device.startswith("HETERO"):
            console.print(network.explain())
        console.print(stage_table(network))
        accuracy = float((predicted == data["labels"]).mean())
        console.print(
            f"{device}: {len(predicted)} held-out images, {TASK_COUNT} tasks: "
            f"{len(predicted) / elapsed_s:.0f} requests/s, accuracy {accuracy:.2%}\n",
            style="bold",
        )
    return accuracy


async def main() -> int:
    async with aioinfer.Core() as core:
        has_cpu = "CPU" in core.available_devices
        first, second = ("CPU", "REFERENCE") if has_cpu else ("REFERENCE.0", "REFERENCE.1")
        affinity = {**dict.fromkeys(FIRST_NODES, first), **dict.fromkeys(SECOND_NODES, second)}
        accuracies = [
            await show(core, first, {}),
            await show(core, f"HETERO:{first},{second}", {"AFFINITY": affinity}),
        ]
    if min(accuracies) < EXPECTED_ACCURACY:
        print(f"the accuracy should be at least {EXPECTED_ACCURACY:.0%}", file=sys.stderr)
        return 1
    return 0


def stage_table(network: aioinfer.ExecutableNetwork) -> Table:
    """Show how long each stage took and how busy each executor was."""
    statistics = network.statistics()
    table = Table(title="stages, and how busy their executors were", box=SIMPLE)
    for heading in ("stage", "executor"):
        table.add_column(heading, no_wrap=True)
    for heading in ("runs", "mean ms", "queued ms", "busy"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stage in statistics.stages:
        table.add_row(
            stage.stage,
            stage.executor,
            str(stage.count),
            f"{stage.mean_service_s * 1e3:.3f}",
            f"{stage.mean_queue_s * 1e3:.3f}",
            f"{statistics.busy_shares[stage.executor]:.0%}",
        )
    return table


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
