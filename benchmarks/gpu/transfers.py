"""Copies between host and device against their size, from pinned and from pageable memory.

    python benchmarks/gpu/transfers.py

Times are the host's, from the call until the copy is over, so fixed costs are in them; pinned
copies in a row are also timed on the device, which shows the link's rate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measuring import Settings, cupy_reason, interleaved, run_benchmark
from predictions import LINK_BYTES_PER_S, transfer_us
from raw_cuda import device_us, pinned
from reporting import Report

TO_DEVICE, TO_HOST = 1, 2
SIZES = {
    "4 KB (1000 logits)": 4_000,
    "one uint8 image": 150_528,
    "one float32 image": 602_112,
    "64 uint8 images": 64 * 150_528,
    "256 uint8 images": 256 * 150_528,
    "256 float32 images": 256 * 602_112,
}


def measure(report: Report, settings: Settings) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    for title, size_bytes in SIZES.items():
        if not settings.has_time(2.0):
            report.refuse(title, "left out: no time")
            continue
        ways = ways_of(stream, size_bytes)
        for way, taken_us in interleaved(ways, settings.rounds, settings.round_s).items():
            predicted = transfer_us(size_bytes) if "pinned" in way else None
            report.add(f"{title}, {way}", taken_us, "us", predicted)
    measure_rates(report, settings, stream)


def ways_of(stream: Any, size_bytes: int) -> dict[str, Any]:
    """Make the four ways of copying a number of bytes."""
    import cupy

    copy = cupy.cuda.runtime.memcpyAsync
    on_device = cupy.empty(size_bytes, cupy.uint8)
    fast = pinned(size_bytes)
    slow = np.random.default_rng(0).integers(0, 256, size_bytes, np.uint8)
    fast[:] = slow

    def copies(target: int, source: int, kind: int) -> Any:
        def run(count: int, kept: Any = (fast, slow, on_device)) -> None:
            for _ in range(count):
                copy(target, source, size_bytes, kind, stream.ptr)
                stream.synchronize()

        return run

    device = on_device.data.ptr
    return {
        "pinned to device": copies(device, fast.ctypes.data, TO_DEVICE),
        "device to pinned": copies(fast.ctypes.data, device, TO_HOST),
        "pageable to device": copies(device, slow.ctypes.data, TO_DEVICE),
        "device to pageable": copies(slow.ctypes.data, device, TO_HOST),
    }


def measure_rates(report: Report, settings: Settings, stream: Any, size: int = 256 << 20) -> None:
    """Time large pinned copies in a row on the device, each way."""
    import cupy

    on_device = cupy.empty(size, cupy.uint8)
    host = pinned(size)
    host[:] = 1
    ends = {
        "rate, pinned to device": (on_device.data.ptr, host.ctypes.data, TO_DEVICE),
        "rate, device to pinned": (host.ctypes.data, on_device.data.ptr, TO_HOST),
    }
    for title, (target, source, kind) in ends.items():

        def enqueue(target: int = target, source: int = source, kind: int = kind) -> None:
            cupy.cuda.runtime.memcpyAsync(target, source, size, kind, stream.ptr)

        taken_us = device_us(stream, enqueue, 4, settings.rounds)
        report.add(title, size / taken_us / 1e3, "GB/s", LINK_BYTES_PER_S / 1e9)


if __name__ == "__main__":
    run_benchmark("transfers", measure, __doc__, cupy_reason)
