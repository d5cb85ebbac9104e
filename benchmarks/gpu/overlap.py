"""What uploads, launches and downloads of different requests do at the same time, by the trace.

    python benchmarks/gpu/overlap.py --json rows.json

ResNet-50 takes float32 images from the host, at two batches. The times are the device's own, as
``network.trace()`` has them; shares are of the time from the first stage to the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from accelerators.opencl_overlap import STAGES, shares
from measuring import Settings, interleaved, run_benchmark
from models import MODELS
from network_runs import draw_sets, in_flight, requests_of, with_batch
from predictions import transfer_us
from reporting import Report
from trace_lanes import stage_of

import aioinfer
from aioinfer.errors import AioInferError

NAME = "resnet50"
BATCHES = (8, 64)


def measure(report: Report, settings: Settings) -> None:
    built = MODELS[NAME].build(batch="batch")
    for batch in BATCHES:
        title = f"batch {batch}"
        if not settings.has_time(15.0):
            report.refuse(title, "left out: no time")
            continue
        try:
            measure_batch(report, settings, with_batch(built, batch), batch)
        except AioInferError as error:
            report.refuse(title, error)


def measure_batch(report: Report, settings: Settings, model: Any, batch: int) -> None:
    config = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": "f16"}
    sets = list(draw_sets(MODELS[NAME].inputs, batch))
    with (
        aioinfer.Core() as core,
        core.load_network(model, settings.device, config) as network,
    ):
        run = in_flight(requests_of(network), sets)
        run(20)
        warm_ns = max(span.ended_ns for span in network.trace())
        interleaved({"all": run}, 1, settings.rounds * settings.round_s)
        trace = network.trace().since(warm_ns)
        size_bytes = sum(array.nbytes for array in sets[0].values())
        add_shares(report, f"batch {batch}", trace, network.device, size_bytes)


def add_shares(
    report: Report, title: str, trace: Sequence[Any], device: str, size_bytes: int
) -> None:
    """Note how long stages take, and how much of the time they share."""
    spans = [span for span in trace if stage_of(span.lane, device) == span.stage]
    if not spans:
        report.refuse(title, "the trace has no times of the device")
        return
    for stage in STAGES:
        taken_us = [(s.ended_ns - s.started_ns) / 1e3 for s in spans if s.stage == stage]
        predicted = transfer_us(size_bytes) if stage == "upload" else None
        report.add(f"{title}, {stage}", median(taken_us), "us", predicted)
    found = shares(spans)
    for stages, share in found.items():
        name = " + ".join(stages) or "nothing"
        report.add(f"{title}, of the time: {name}", share * 100, "%")
    report.add(f"{title}, of the time: copies beside computing", together(found) * 100, "%")
    report.add(f"{title}, of the time: all computing", computing(found) * 100, "%")


def together(found: Mapping[tuple[str, ...], float]) -> float:
    """Sum the shares of the time in which something is copied and something computed. Pure."""
    return sum(
        share for stages, share in found.items() if "compute" in stages and len(set(stages)) > 1
    )


def computing(found: Mapping[tuple[str, ...], float]) -> float:
    """Sum the shares of the time in which something is computed. Pure."""
    return sum(share for stages, share in found.items() if "compute" in stages)


if __name__ == "__main__":
    run_benchmark("overlap", measure, __doc__)
