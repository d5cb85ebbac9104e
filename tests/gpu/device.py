"""The device that the tests on a GPU use, and its memory seen from beside aioinfer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["DEVICE", "cupy", "leave_nan_behind", "nearly_full"]

DEVICE = os.environ.get("AIOINFER_CUDA_DEVICE", "CUDA")
"""Such as CUDA.1; the first one otherwise."""

_NAN_BYTE = 0xFF
"""A float of any kind is NaN if all of its bits are set."""


def cupy() -> Any:
    """Import CuPy, or skip the test where it cannot be used."""
    module = pytest.importorskip("cupy")
    if not module.cuda.is_available():
        pytest.skip("CuPy sees no CUDA device")
    return module


def leave_nan_behind(size_bytes: int = 2 << 30) -> None:
    """Fill device memory with NaN and give it back, so that what is taken next begins with it.

    A driver does not clear what a process takes again, so memory that a kernel reads and nothing
    wrote gives NaN. Where there is less room, less is filled.
    """
    runtime = cupy().cuda.runtime
    free_bytes, _ = runtime.memGetInfo()
    taken_bytes = min(size_bytes, free_bytes // 2)
    address = runtime.malloc(taken_bytes)
    try:
        runtime.memset(address, _NAN_BYTE, taken_bytes)
        runtime.deviceSynchronize()
    finally:
        runtime.free(address)


@contextmanager
def nearly_full(left_bytes: int = 32 << 20) -> Iterator[None]:
    """Hold all of the device's memory but so much."""
    runtime = cupy().cuda.runtime
    addresses = []
    try:
        while True:
            free_bytes, _ = runtime.memGetInfo()
            if free_bytes <= left_bytes:
                break
            size_bytes = min(free_bytes - left_bytes, 8 << 30)
            try:
                addresses.append(runtime.malloc(size_bytes))
            except runtime.CUDARuntimeError:
                break  # what is free is in pieces, and no longer worth counting
        yield
    finally:
        for address in addresses:
            runtime.free(address)
