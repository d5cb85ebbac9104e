"""Where oneDNN's shared library is, whether it is one we can drive, and whose threads it uses."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path

from ....errors import DeviceError
from ....executors import check_files, find_shortage
from ....runtime.devices.installed_packages import find_installed_file
from ..native.extension import native_extension

__all__ = [
    "LIBRARY_VARIABLE",
    "Version",
    "adopt_threads",
    "find_library",
    "open_library",
]

LIBRARY_VARIABLE = "AIOINFER_ONEDNN_LIBRARY"
"""The environment variable that holds the path of a libdnnl.so to use instead of the wheel's."""

WHEEL = "onednn-cpu-gomp"
_INSTALL = "pip install aioinfer[cpu]"
SYSTEM_NAME = "libdnnl.so.3"
OPENMP_RUNTIME = 2  # dnnl_version's cpu_runtime: 1 sequential, 2 OpenMP, 4 TBB, 8 thread pool

Version = tuple[int, int, int]


class _VersionStruct(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


def find_library() -> str:
    """Return the library to open: the variable's, else the wheel's, else the system's.

    Raises DeviceError where there can be none, with the reason and the way to get it.
    """
    given = os.environ.get(LIBRARY_VARIABLE)
    if given:
        if not Path(given).is_file():
            raise DeviceError(f"{LIBRARY_VARIABLE}={given!r}: there is no such file")
        return str(Path(given).resolve())  # a bare name would be looked for in the system's folders
    machine = platform.machine().lower()
    if sys.platform != "linux" or machine not in ("x86_64", "amd64"):
        raise DeviceError(
            f"CPU runs on Linux x86-64 (this is {sys.platform} on {machine}); load on ONNXRUNTIME "
            f"or REFERENCE, or name your own build of oneDNN 3 in {LIBRARY_VARIABLE}"
        )
    return _library_of_wheel() or SYSTEM_NAME


def _library_of_wheel() -> str | None:
    check_files("looking for oneDNN")
    found = find_installed_file(WHEEL, SYSTEM_NAME)
    path = None if found is None else found.resolve()
    return str(path) if path is not None and path.is_file() else None


def open_library(path: str) -> tuple[ctypes.CDLL, Version]:
    """Load the library and check that it is oneDNN 3 on OpenMP; raises DeviceError."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        lacking = find_shortage(error, f"loading oneDNN from {path!r}")
        if lacking is not None:
            raise lacking from error
        raise DeviceError(
            f"oneDNN cannot be loaded ({error}); install it with {_INSTALL!r}, and "
            f"OpenMP's runtime with your system's package manager (libgomp1), or name a build of "
            f"oneDNN 3 in {LIBRARY_VARIABLE}",
            install=_INSTALL,
        ) from error
    try:
        library.dnnl_version.restype = ctypes.POINTER(_VersionStruct)
        found = library.dnnl_version().contents
    except AttributeError as error:
        raise DeviceError(f"{path!r} is no oneDNN library: it has no dnnl_version") from error
    version = (found.major, found.minor, found.patch)
    if found.major != 3:
        raise DeviceError(
            f"{path!r} is oneDNN {'.'.join(map(str, version))}; 3.x is needed: install it with "
            f"'pip install aioinfer[cpu]', or name another build in {LIBRARY_VARIABLE}"
        )
    if found.cpu_runtime != OPENMP_RUNTIME:
        raise DeviceError(
            f"{path!r} is oneDNN {'.'.join(map(str, version))} without OpenMP, so its threads "
            f"cannot be divided among streams; use the build in {WHEEL}"
        )
    return library, version


def adopt_threads(library: ctypes.CDLL, path: str) -> None:
    """Have our own teams compute its parallel regions (team.c); raises DeviceError."""
    try:
        unknown = native_extension().adopt_library(library._handle)
    except OSError as error:
        raise DeviceError(
            f"oneDNN in {path!r} cannot be given our own threads ({error}): the system does not "
            f"let this process write to that library's table of addresses; load on ONNXRUNTIME"
        ) from error
    if unknown is not None:
        raise DeviceError(
            f"{path!r} was not built by a compiler whose OpenMP calls we know ({unknown}); use the "
            f"build in {WHEEL} (install it with {_INSTALL!r}), or one that gcc made"
        )
