"""What a library of NVIDIA raises, as the driver's error, and what it warns of, as no error."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ...accelerator.queues.driver import DriverError, ErrorKind
from ...accelerator.queues.library_operation import LibraryOperation

__all__ = ["translated", "warnings_are_no_errors"]

_ALLOCATION_FAILED = 3  # CUBLAS_STATUS_ALLOC_FAILED
_relenting = threading.Lock()


@contextmanager
def translated(operation: LibraryOperation) -> Iterator[None]:
    """Raise DriverError for what cuBLAS or cuBLASLt raises within, and for ValueError."""
    try:
        yield
    except DriverError:
        raise
    except Exception as error:  # each binding has an error of its own, of no common class
        is_full = getattr(error, "status", None) == _ALLOCATION_FAILED
        kind = ErrorKind.OUT_OF_MEMORY if is_full else ErrorKind.OTHER
        raise DriverError(kind, f"{operation.library}: {error}; asked for {operation}") from error


@contextmanager
def warnings_are_no_errors() -> Iterator[None]:
    """Allow what is imported within to warn, also where the program makes errors of warnings.

    The filters of warnings are the process's. So they stay where there is no need, and one
    thread at a time changes them; another that did so meanwhile would put the wrong ones back.
    """
    with _relenting:
        if not any(action == "error" for action, *_ in warnings.filters):
            yield
            return
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            yield
