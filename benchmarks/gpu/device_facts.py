"""What the GPU is: versions, limits, MPS, its two ceilings, and what aioinfer says of it.

    python benchmarks/gpu/device_facts.py --json facts.json

The ceilings are a large copy on the device, counting bytes read and written, and a large matmul
in float16. ``facts.device_properties`` is what cuDNN needs to plan for this device on a machine
without one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from measuring import Settings, cupy_reason, run_benchmark
from predictions import COPY_BYTES_PER_S, PRODUCT_FLOP_PER_S
from raw_cuda import device_us
from reporting import Report

import aioinfer
from aioinfer.errors import AioInferError

COPIED_BYTES = 2 << 30
SIDE = 8192


def measure(report: Report, settings: Settings) -> None:
    import cupy

    index = cupy.cuda.runtime.getDevice()
    report.facts["properties"] = plain(cupy.cuda.runtime.getDeviceProperties(index))
    report.facts["driver"] = cupy.cuda.runtime.driverGetVersion()
    report.facts["runtime"] = cupy.cuda.runtime.runtimeGetVersion()
    report.facts["mps"] = mps()
    report.facts["nvidia_smi"] = nvidia_smi()
    report.facts["cudnn"] = cudnn_facts(index)
    report.facts["aioinfer"] = metrics_of(settings.device)
    free_bytes, total_bytes = cupy.cuda.runtime.memGetInfo()
    report.add("memory", total_bytes / 2**30, "GiB", note=f"{free_bytes / 2**30:.1f} GiB free")
    print(json.dumps(report.facts, indent=1, default=str), flush=True)
    measure_copy(report, settings)
    measure_matmul(report, settings)


def measure_copy(report: Report, settings: Settings) -> None:
    import cupy

    source, target = (cupy.empty(COPIED_BYTES, cupy.uint8) for _ in range(2))
    source.data.memset(0x5A, COPIED_BYTES)
    stream = cupy.cuda.Stream(non_blocking=True)

    def copy() -> None:
        cupy.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, COPIED_BYTES, 3, stream.ptr)

    taken_us = device_us(stream, copy, 10, settings.rounds)
    report.add("copy", 2 * COPIED_BYTES / taken_us / 1e6, "TB/s", COPY_BYTES_PER_S / 1e12)


def measure_matmul(report: Report, settings: Settings) -> None:
    import cupy

    a, b = (cupy.random.standard_normal((SIDE, SIDE), "f").astype("e") for _ in range(2))
    out = cupy.empty_like(a)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()  # which the other one does not wait for
    with stream:
        taken_us = device_us(stream, lambda: cupy.matmul(a, b, out=out), 10, settings.rounds)
    rate = 2 * SIDE**3 / taken_us / 1e6
    report.add(f"float16 matmul of {SIDE}", rate, "TFLOP/s", PRODUCT_FLOP_PER_S / 1e12)


def mps() -> dict[str, Any]:
    """Say what shows whether programs share the device by NVIDIA's multi-process service."""
    pipe = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    return {"pipe_directory": pipe, "is_there": Path(pipe, "control").exists()}


def nvidia_smi() -> str:
    """Ask the driver's program, which only reads here."""
    try:
        done = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout


def cudnn_facts(index: int) -> dict[str, Any]:
    """Ask cuDNN's frontend for its version and the properties that plans are built from."""
    try:
        import cudnn
    except ImportError as error:
        return {"missing": str(error)}
    found: dict[str, Any] = {"version": cudnn.backend_version_string()}
    try:
        found["device_properties"] = json.loads(bytes(properties_text(cudnn, index)))
    except Exception as error:  # whatever a version of the frontend raises is a fact, too
        found["device_properties_error"] = repr(error)
    return found


def properties_text(cudnn: Any, index: int) -> bytes:
    serialized = cudnn.create_device_properties(index).serialize()
    return serialized.encode() if isinstance(serialized, str) else bytes(serialized)


def metrics_of(device: str) -> dict[str, str]:
    """List all that aioinfer answers about the device, or why it has none."""
    found = {}
    with aioinfer.Core() as core:
        try:
            keys = [str(key) for key in core.get_metric(device, "SUPPORTED_METRICS")]
        except AioInferError as error:
            return {"error": str(error)}
        for key in keys:
            try:
                found[key] = str(core.get_metric(device, key))
            except AioInferError as error:
                found[key] = f"refused: {error}"
    return found


def plain(properties: dict[str, Any]) -> dict[str, Any]:
    """Make the runtime's properties fit for JSON."""
    return {
        key: value.hex() if isinstance(value, bytes) and key == "uuid" else text_of(value)
        for key, value in properties.items()
    }


def text_of(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    run_benchmark("device_facts", measure, __doc__, cupy_reason)
