"""Libraries of NVIDIA behind LibraryOperation; with the driver, these modules import them.

An operation's module is named by its library and label. It has ``find_missing() -> str | None``,
which says why it cannot be used, and ``plan(operation, device_id) -> Planned``.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from ....executors.late_imports import late_imports
from ...accelerator.queues.driver import DriverError, ErrorKind
from ...accelerator.queues.library_operation import LibraryOperation
from .library_errors import warnings_are_no_errors
from .planned import Planned

_log = logging.getLogger("aioinfer")

__all__ = ["OPERATIONS", "find_libraries", "plan_operation"]

OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "cublas": ("matmul",),
    "cublaslt": ("matmul",),
    "cudnn": ("conv", "attention"),
}
"""The labels of each library's operations."""


def find_libraries() -> frozenset[str]:
    """Name the libraries whose operations can all be loaded; the log says why others cannot.

    It warns of one that is there and fails.
    """
    found = set()
    for library, labels in OPERATIONS.items():
        level, missing = logging.INFO, None
        try:
            with warnings_are_no_errors():
                reasons = (_module(library, label).find_missing() for label in labels)
                missing = next(filter(None, reasons), None)
        except Exception as error:  # half an installation raises anything
            level, missing = logging.WARNING, f"{type(error).__name__}: {error}"
        if missing is None:
            found.add(library)
        else:
            _log.log(level, "CUDA does without %s: %s", library, missing)
    return frozenset(found)


def plan_operation(operation: LibraryOperation, device_id: int) -> Planned:
    """Make a library's plan for an operation on a device, the thread's current one. Blocks.

    Raises DriverError for an operation that the library does not have, or refuses.
    """
    library, label = operation.library, operation.label
    if label not in OPERATIONS.get(library, ()):
        raise DriverError(ErrorKind.OTHER, f"{library!r} has no operation {label!r}")
    planned: Planned = _module(library, label).plan(operation, device_id)
    return planned


def _module(library: str, label: str) -> Any:
    with late_imports:
        return importlib.import_module(f".{library}_{label}", __package__)
