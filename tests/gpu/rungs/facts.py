"""The first rung: versions and the device, and whether all that is needed is there."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from gpu.needs import NEEDS, UNFIT, libraries_needed, modules_needed

__all__ = ["missing_of", "tell_facts"]

_WAYS_OUT = {
    "cupy": "pip install cupy-cuda13x",
    "cudnn": "make gpu-wheels where there is a network, or pip install --no-deps "
    "nvidia-cudnn-frontend",
    "nvmath": "make gpu-wheels where there is a network, or pip install nvmath-python",
}
_MODULES = {"nvmath": "nvmath.bindings.cublasLt"}
_PACKAGES = (
    *("cupy-cuda13x", "cupy-cuda12x", "nvidia-cudnn-frontend", "nvidia-cudnn-cu13"),
    *("nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvmath-python", "cuda-core"),
    *("cuda-bindings", "cuda-pathfinder", "torch", "numpy", "ml_dtypes", "onnx", "uvloop"),
    *("pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "hypothesis", "aioinfer"),
)
_PROPERTIES = ("name", "major", "minor", "multiProcessorCount", "totalGlobalMem", "l2CacheSize")


def tell_facts() -> int:
    """Print what is here; returns the status of a machine where nothing else makes sense."""
    from gpu.device import DEVICE

    print(f"Python {platform.python_version()}, {os.cpu_count()} processors")
    for name in _PACKAGES:
        print(f"  {name:24}{version_of(name)}")
    print(nvidia_smi())
    missing = missing_of(modules_needed(), importlib.import_module)
    for name, reason in missing.items():
        print(f"MISSING: {name}: {reason}; {_WAYS_OUT[name]}, or leave it out of {NEEDS}")
    tell_device()
    return UNFIT if missing else tell_aioinfer(DEVICE)


def missing_of(needs: Sequence[str], load: Callable[[str], Any]) -> dict[str, str]:
    """Say why modules cannot be loaded, by name."""
    missing = {}
    for name in needs:
        try:
            load(_MODULES.get(name, name))
        except Exception as error:  # half an installation raises anything
            missing[name] = f"{type(error).__name__}: {error}"
    return missing


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def nvidia_smi() -> str:
    """Ask the driver's program, which only reads here."""
    query = "--query-gpu=name,driver_version,memory.used,memory.total,clocks.sm,pstate"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv"], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return (done.stdout + done.stderr).strip()


def tell_device() -> None:
    """Print what CuPy sees."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        return
    runtime = cupy.cuda.runtime
    print(f"CUDA's driver {runtime.driverGetVersion()}, runtime {runtime.runtimeGetVersion()}")
    if not cupy.cuda.is_available():
        print("CuPy sees no GPU")
        return
    for index in range(runtime.getDeviceCount()):
        said = runtime.getDeviceProperties(index)
        print(f"GPU {index}: { ({key: said.get(key) for key in _PROPERTIES}) }")
    print(f"free and total memory: {runtime.memGetInfo()}")


def tell_aioinfer(device: str) -> int:
    """Print what aioinfer says of the device; returns the status where it has none.

    Raises AssertionError if a library that is needed was found, and does not work.
    """
    from aioinfer import Core
    from aioinfer.errors import DeviceError

    with Core() as core:
        try:
            core.resolve_device(device)
        except DeviceError as error:
            print(f"MISSING: {device}: {error}")
            return UNFIT
        for key in ("FULL_DEVICE_NAME", "CUDA_VERSION", "DRIVER_VERSION", "CUDA_LIBRARIES"):
            print(f"{key}: {core.get_metric(device, key)}")
        useless = libraries_needed() - set(core.get_metric(device, "CUDA_LIBRARIES"))
    assert not useless, f"found, and of no use, as the log says: {', '.join(sorted(useless))}"
    return 0
