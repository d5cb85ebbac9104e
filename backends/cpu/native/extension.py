"""The C extension, loaded once: its functions are documented in steps.c."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from ....errors import DeviceError
from ....executors import shortage_as_error
from ....executors.late_imports import late_imports
from ....executors.shortage import check_memory

__all__ = ["native_extension", "start_team"]

INTERFACE = 17
"""The number of steps.c that this package calls; the same there."""

_MATE_BYTES = 1 << 20
"""What each thread of a team takes beside its stack until it waits for work."""


@functools.cache
def native_extension() -> Any:
    """Return the extension; DeviceError where it is missing or was built from other sources."""
    try:
        with shortage_as_error("loading CPU's native extension"), late_imports:
            found: Any = importlib.import_module("._steps", __package__)
    except ImportError as error:
        raise DeviceError(
            f"CPU cannot be used without its native extension ({error}); install a C compiler and "
            f"reinstall aioinfer, or load on ONNXRUNTIME or REFERENCE"
        ) from error
    interface = getattr(found, "interface", 0)
    if interface != INTERFACE:
        raise DeviceError(
            f"CPU cannot be used: the C extension was built from other sources (interface "
            f"{interface}, wanted {INTERFACE}); run `pip install -e .` again"
        )
    return found


def start_team(count: int) -> None:
    """Have this thread's team be of ``count`` threads at least; they end with this thread.

    Costs next to nothing once they are there. Raises DeviceError where they cannot be started, and
    then it can be tried again, or MemoryError.
    """
    if count <= 1:
        return
    check_memory(_MATE_BYTES * count)
    with shortage_as_error(f"starting a team of {count} threads"):
        native_extension().start_team(count)
