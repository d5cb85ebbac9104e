"""What the host pays to launch: kernels by CuPy, events, copies, and CUDA graphs of some lengths.

    python benchmarks/gpu/launch_cost.py

The device's side of graphs, and the gap between their nodes, is there too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from measuring import Settings, cupy_reason, run_benchmark
from predictions import LAUNCH_GAP_US, LAUNCH_US, graph_launch_us
from raw_cuda import add_one, captured, device_us, host_us, pinned
from reporting import Report

COUNT = 200
"""Launches in a row, few enough for the driver's queue."""
NODES = (1, 60, 200)
LENGTH = 1024


def measure(report: Report, settings: Settings) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(LENGTH, cupy.float32)
    cupy.cuda.get_current_stream().synchronize()  # which the other one does not wait for
    raw = add_one()
    launch = partial(raw, (LENGTH // 256,), (256,), (x, np.int32(LENGTH)), stream=stream)
    elementwise = cupy.ElementwiseKernel(
        "float32 x", "float32 y", "y = x * 0.999f + 1.0f", "add_one_elementwise"
    )
    event = cupy.cuda.Event(block=True, disable_timing=True)
    host = pinned(LENGTH)
    calls: dict[str, tuple[Callable[[], Any], float | None]] = {
        "RawKernel": (launch, LAUNCH_US),
        "ElementwiseKernel": (lambda: elementwise(x, x, stream=stream), LAUNCH_US),
        "record of an event": (lambda: event.record(stream), None),
        "wait for an event, on the device": (lambda: stream.wait_event(event), None),
        "copy of 1 KB, pinned": (
            lambda: cupy.cuda.runtime.memcpyAsync(
                x.data.ptr, host.ctypes.data, LENGTH, 1, stream.ptr
            ),
            None,
        ),
        "eventQuery": (lambda: cupy.cuda.runtime.eventQuery(event.ptr), None),
    }
    for title, (call, predicted) in calls.items():
        taken_us = host_us(call, stream.synchronize, COUNT, settings.rounds)
        report.add(f"host, {title}", taken_us, "us", predicted)
    measure_graphs(report, settings, stream, launch)


def measure_graphs(
    report: Report, settings: Settings, stream: Any, launch: Callable[[], Any]
) -> None:
    on_device_us: dict[int, float] = {}
    for count in NODES:

        def enqueue(count: int = count) -> None:
            for _ in range(count):
                launch()

        graph = captured(stream, enqueue)
        replay = partial(graph.launch, stream)
        taken_us = host_us(replay, stream.synchronize, 20, settings.rounds)
        title = f"CUDA graph of {count} nodes"
        report.add(f"host, {title}", taken_us, "us", graph_launch_us(count))
        on_device_us[count] = device_us(stream, replay, 20, settings.rounds)
        report.add(f"device, {title}", on_device_us[count], "us")
    first, *_, last = NODES
    each_us = (on_device_us[last] - on_device_us[first]) / (last - first)
    note = "a small kernel and the gap to the next; predicted is the gap"
    report.add("device, one more node", each_us, "us", LAUNCH_GAP_US, note=note)


if __name__ == "__main__":
    run_benchmark("launch_cost", measure, __doc__, cupy_reason)
