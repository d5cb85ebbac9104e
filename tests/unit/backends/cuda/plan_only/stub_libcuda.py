"""A libcuda.so.1 without a device, for planning: cuDNN asks for it, and plans without it.

Every function of cuda.h fails as where there is no GPU, but those that load compiled code, which
succeed, and those that look functions up.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

from aioinfer.backends.cuda.libraries.cudnn_device import find_missing

__all__ = ["H200", "find_header", "missing_reason", "write_stub"]

_NO_DEVICE = 100
_LOADERS = (
    "cuLibraryLoadData",
    "cuLibraryGetKernel",
    "cuLibraryGetModule",
    "cuKernelGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
)
_UNLOADERS = ("cuLibraryUnload", "cuModuleUnload")
_LOOK_UP = """
int {name}(const char *name, void **found, int version, unsigned long long flags, int *status) {{
    *found = dlsym(RTLD_DEFAULT, name);
    if (status) *status = *found ? 0 : 1;
    return *found ? 0 : 500;
}}
"""

H200 = json.dumps(
    {
        "maxGridSize": [2147483647, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536,
        "warpSize": 32,
        "multiProcessorCount": 132,
        "maxSharedMemoryPerBlock": 49152,
        "maxSharedMemoryPerBlockOptin": 232448,
        "maxCtasPerSM": 32,
        "reservedSharedMemoryPerBlock": 1024,
        "maxRegistersPerSM": 65536,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": 2048,
        "pciDeviceId": 0,
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
        "totalGlobalMem": 150000000000,
        "smClockRateKHz": 1980000,
        "cudaDeviceId": 0,
        "memClockRateKHz": 3201000,
        "l2CacheSize": 62914560,
        "deviceVer": 900,
        "driverVer": 13000,
        "deviceName": "NVIDIA H200",
    }
)
"""The properties of a GPU, as cuDNN writes them."""


def missing_reason() -> str | None:
    """Say what is missing to plan without a device, or None."""
    missing = find_missing()
    if missing is not None:
        return missing
    if shutil.which("gcc") is None:
        return "gcc is missing, to build a libcuda without a device"
    if find_header() is None:
        return "cuda.h is missing; it comes with nvidia-cuda-runtime"
    return None


def find_header() -> Path | None:
    """Find cuda.h where wheels and the toolkit have it."""
    nvidia = importlib.util.find_spec("nvidia")
    places = list(nvidia.submodule_search_locations or ()) if nvidia is not None else []
    wheels = [path for place in places for path in Path(place).glob("cu*/include/cuda.h")]
    toolkit = Path("/usr/local/cuda/include/cuda.h")
    return next((path for path in (*sorted(wheels), toolkit) if path.exists()), None)


def write_stub(folder: Path) -> None:
    """Build ``libcuda.so.1`` in a folder."""
    header = find_header()
    assert header is not None
    found = set(re.findall(r"\b(cu[A-Z]\w*)\s*\(", header.read_text(encoding="utf-8")))
    names = found | {re.sub(r"_v\d+$", "", name) for name in found}
    source = folder / "libcuda.c"
    parts = ["#define _GNU_SOURCE", "#include <dlfcn.h>", *map(_function, sorted(names))]
    source.write_text("\n".join(parts), encoding="utf-8")
    target = folder / "libcuda.so.1"
    options = ["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", str(target)]
    subprocess.run(["gcc", *options, str(source), "-ldl"], check=True)


def _function(name: str) -> str:
    if name.startswith("cuGetProcAddress"):
        return _LOOK_UP.format(name=name)
    if name in _LOADERS:
        return f"int {name}(void **made) {{ if (made) *made = (void *)16; return 0; }}"
    if name == "cuDriverGetVersion":
        return f"int {name}(int *version) {{ *version = 13000; return 0; }}"
    return f"int {name}(void) {{ return {0 if name in _UNLOADERS else _NO_DEVICE}; }}"
