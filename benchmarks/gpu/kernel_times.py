"""Where a device's time goes: kernels of networks by how long they take, and the gaps between them.

    python benchmarks/gpu/kernel_times.py

One run after the other, from and to memory of the device, in float16. The kernels in a CUDA graph
are told by CUPTI, through torch's profiler: without torch nothing is measured.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from kernel_sums import Event, busy_us, by_kernel, gaps_us
from measuring import Settings, run_benchmark
from models import MODELS
from network_runs import bind_outputs, in_flight, to_device, with_batch
from reporting import Report

import aioinfer
from aioinfer.errors import AioInferError

CASES = (("resnet50", 1), ("resnet50", 64), ("bert_base", 1), ("bert_base", 64), ("resnet50", 256))
RUNS, WARM_UP = 6, 5
SHOWN = 10
"""Kernels of a network, those that take longest."""
KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
CONFIG = {"INFERENCE_PRECISION_HINT": "f16", "PERFORMANCE_HINT_NUM_REQUESTS": "1"}
SETUP_S = 25.0


def measure(report: Report, settings: Settings) -> None:
    try:
        import torch
    except ImportError as error:
        report.refuse("kernels", f"torch cannot be imported: {error}")
        return
    torch.zeros(1, device="cuda")  # before the profiler
    for name, batch in CASES:
        title = f"{name}, batch {batch}"
        if not settings.has_time(SETUP_S):
            report.refuse(title, "left out: no time")
            continue
        try:
            add_rows(report, title, events_of(name, batch, settings.device))
        except AioInferError as error:
            report.refuse(title, error)


def events_of(name: str, batch: int, device: str) -> list[Event]:
    """Run a network, and return what the device did."""
    model = with_batch(MODELS[name].build(batch="batch"), batch)
    inputs = MODELS[name].inputs(np.random.default_rng(0), batch)
    with aioinfer.Core() as core, core.load_network(model, device, CONFIG) as network:
        request = network.create_infer_request()
        bind_outputs(request, network, inputs)
        run = in_flight([request], [to_device(inputs)])
        run(WARM_UP)
        return profiled(lambda: run(RUNS))


def profiled(work: Callable[[], object]) -> list[Event]:
    """Return what the device does meanwhile, in its order."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(file))
        traced = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    return sorted((e for e in traced if e.get("cat") in KINDS), key=lambda event: event["ts"])


def add_rows(report: Report, title: str, events: Sequence[Event]) -> None:
    """Note how long a run of all keeps the device, and with what."""
    report.add(f"{title}, kernels and copies", len(events) / RUNS, "a run")
    report.add(f"{title}, busy", busy_us(events) / RUNS, "us")
    report.add(f"{title}, gaps", gaps_us(events) / RUNS, "us")
    for name, (count, taken_us) in by_kernel(events)[:SHOWN]:
        report.add(f"{title}, {name[:90]}", taken_us / RUNS, "us", note=f"{count / RUNS:g} a run")


if __name__ == "__main__":
    run_benchmark("kernel_times", measure, __doc__)
