"""What GPUs say of themselves, and why there are none."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from ...errors import DeviceError
from ..accelerator.queues.driver import DeviceFacts

__all__ = ["count_devices", "facts_of", "refuse_without_driver"]

_DLPACK_CUDA = 2
_ALIGN_BYTES = 256
"""What cudaMalloc aligns to; libraries want 16 at most, and 128 is a line of the cache."""
_NO_DEVICE, _NO_DRIVER_FOR_IT = 100, (35, 36)
"""Numbers of errors: there is no GPU; the driver is missing or too old."""
_COMPUTES_IN_FLOAT16 = (5, 3)
"""The first compute capability that does."""
_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_NO_DRIVER = (
    f"NVIDIA's driver is not installed (there is no {_LIBRARY}); install the one of your GPU, for "
    "a container with NVIDIA's container toolkit"
)


def refuse_without_driver(load: Callable[[str], object] = ctypes.CDLL) -> None:
    """Raise DeviceError if there is no driver: that is known in no time, and CuPy takes a second.

    ``load`` loads a library by its name, or raises OSError.
    """
    try:
        load(_LIBRARY)
    except OSError as error:
        raise DeviceError(_NO_DRIVER) from error


def count_devices(cupy: Any) -> int:
    """Count the GPUs; raises DeviceError, with the way out, if there are none or no kernel can be.

    Asks the driver, and loads NVRTC.
    """
    runtime = cupy.cuda.runtime
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        raise DeviceError(_why_none(runtime, error)) from error
    if count == 0:
        raise DeviceError(_no_gpu("it counts none"))
    try:
        cupy.cuda.nvrtc.getVersion()
    except (RuntimeError, ImportError, OSError) as error:
        wheel = f"nvidia-cuda-nvrtc{'' if _major(runtime) >= 13 else '-cu12'}"
        raise DeviceError(
            f"NVRTC, CUDA's compiler of kernels, cannot be loaded ({error}); install it with "
            f"'pip install {wheel}', or install the CUDA toolkit"
        ) from error
    return count


def facts_of(cupy: Any, index: int, libraries: frozenset[str]) -> DeviceFacts:
    """Ask a GPU what it is. Raises DeviceError if it does not answer."""
    runtime = cupy.cuda.runtime
    try:
        said = runtime.getDeviceProperties(index)
        driver, own = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    except runtime.CUDARuntimeError as error:
        raise DeviceError(
            f"GPU {index} does not say what it is ({error}); see whether nvidia-smi lists it, or "
            "leave it out by the environment variable CUDA_VISIBLE_DEVICES"
        ) from error
    name, major, minor = said["name"], int(said["major"]), int(said["minor"])
    return DeviceFacts(
        index=index,
        name=(name.decode() if isinstance(name, bytes) else str(name)).strip(),
        platform="NVIDIA CUDA",
        platform_version=f"CUDA {_version(own)}, compute capability {major}.{minor}",
        driver_version=f"CUDA {_version(driver)}",
        kind="integrated" if said["integrated"] else "discrete",
        memory_bytes=int(said["totalGlobalMem"]),
        largest_buffer_bytes=int(said["totalGlobalMem"]),
        align_bytes=_ALIGN_BYTES,
        work_group_size=int(said["maxThreadsPerBlock"]),
        has_float16=(major, minor) >= _COMPUTES_IN_FLOAT16,
        moves_words=True,
        compute_capability=(major, minor),
        libraries=libraries,
        can_capture=True,
        can_adopt=True,
        dlpack_kind=_DLPACK_CUDA,
        can_lend_host_memory=True,
        are_times_free=False,
    )


def _why_none(runtime: Any, error: Any) -> str:
    if error.status == _NO_DEVICE:
        return _no_gpu(str(error))
    if error.status not in _NO_DRIVER_FOR_IT:
        return f"CUDA's driver does not start ({error}); see what nvidia-smi says"
    version = int(runtime.driverGetVersion())  # 0 without a driver, and never an error
    needed = _version(runtime.runtimeGetVersion())
    if version == 0:
        return _NO_DRIVER
    older = f"cupy-cuda{version // 1000}x"
    return (
        f"NVIDIA's driver is too old: it has CUDA {_version(version)}, and CuPy needs {needed}; "
        f"install a newer driver, or {older!r} instead of CuPy for CUDA {needed.split('.')[0]}"
    )


def _no_gpu(reason: str) -> str:
    return (
        f"NVIDIA's driver sees no GPU ({reason}); see what nvidia-smi lists, and whether the "
        "environment variable CUDA_VISIBLE_DEVICES, or a container without GPUs, hides it"
    )


def _major(runtime: Any) -> int:
    return int(runtime.runtimeGetVersion()) // 1000


def _version(number: int) -> str:
    """Write 13010 as 13.1."""
    return f"{number // 1000}.{number % 1000 // 10}"
