"""Libraries of NVIDIA behind LibraryOperation; with the driver, these modules import them.

An operation's module is named by its library and label. It has ``is_installed() -> bool`` and
``plan(operation, device_id) -> Planned``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ....runtime.accelerator.driver import DriverError, ErrorKind
from ....runtime.accelerator.library_operation import LibraryOperation
from .planned import Planned

__all__ = ["OPERATIONS", "find_libraries", "plan_operation"]

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "cublas": ("matmul",),
    "cublaslt": ("matmul",),
    "cudnn": ("conv", "attention"),
}
"""The labels of each library's operations."""


def find_libraries() -> frozenset[str]:
    """Name the libraries that are installed and can be loaded, all operations of each. Blocks."""
    return frozenset(
        library
        for library, labels in OPERATIONS.items()
        if all(_is_there(library, label) for label in labels)
    )


def plan_operation(operation: LibraryOperation, device_id: int) -> Planned:
    """Make a library's plan for an operation on a device, the thread's current one. Blocks.

    Raises DriverError for an operation that the library does not have, or refuses.
    """
    library, label = operation.library, operation.label
    if label not in OPERATIONS.get(library, ()):
        raise DriverError(ErrorKind.OTHER, f"{library!r} has no operation {label!r}")
    planned: Planned = _module(library, label).plan(operation, device_id)
    return planned


def _is_there(library: str, label: str) -> bool:
    try:
        return bool(_module(library, label).is_installed())
    except Exception:  # half an installation raises anything, and has no say over the others
        return False


def _module(library: str, label: str) -> Any:
    return importlib.import_module(f".{library}_{label}", __package__)
