"""Matmuls by cuBLAS as CuPy has loaded it: without bias, residual or activation.

CuPy keeps a handle for each thread and device, and sets its stream anew for each call of its own,
as a launch does here. The handle has a workspace of its own, and what is captured one by the graph,
so the one that a launch brings along is not used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....executors.late_imports import late_imports
from ...accelerator.queues.driver import DriverError, ErrorKind
from ...accelerator.queues.library_operation import LibraryOperation
from ..matrix_layout import column_matmul
from .cublas_calls import CublasCalls, load_calls
from .library_errors import translated

if TYPE_CHECKING:
    from .planned import Planned

__all__ = ["Cublas", "find_missing", "plan"]

_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""Element types by their numbers in ``cudaDataType``."""


def find_missing() -> str | None:
    """Return why the library cannot be loaded, as CuPy finds it; None if it can."""
    try:
        _library()
    except (ImportError, OSError, AttributeError) as error:
        return f"{error}; install it with 'pip install nvidia-cublas'"
    return None


def plan(operation: LibraryOperation, device_id: int) -> Planned:
    """Plan a matmul; raises DriverError for one with more than a matmul."""
    return _library().plan(operation)


class Cublas:
    """The library in this process. Thread-safe.

    ``calls`` are its functions, or what a test gives for them; ``current_handle`` gives the handle
    of the thread and its device.
    """

    def __init__(self, calls: CublasCalls, current_handle: Callable[[], int]) -> None:
        self.calls, self.current_handle = calls, current_handle

    def plan(self, operation: LibraryOperation) -> MatmulPlan:
        """Plan a matmul; see the function of this name."""
        follows = [name for name in ("has_bias", "has_residual", "activation") if operation[name]]
        if follows:
            names = ", ".join(follows)
            raise DriverError(ErrorKind.OTHER, f"cublas has no {names}; asked for {operation}")
        with translated(operation):
            return MatmulPlan(self, operation)


class MatmulPlan:
    """The arguments of one call but for the addresses; immutable."""

    def __init__(self, library: Cublas, operation: LibraryOperation) -> None:
        self._library, self._operation = library, operation
        self._matmul = column_matmul(operation)
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        calls, dtype = library.calls, operation["dtype"]
        self._dtype = _TYPES[dtype]
        is_tf32 = dtype == "float32" and operation["has_tf32"]
        self._compute = calls.COMPUTE_32F_FAST_TF32 if is_tf32 else calls.COMPUTE_32F

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueue a launch: a, b, d, workspace."""
        left, right, made, _ = addresses
        calls, matmul = self._library.calls, self._matmul
        operations = calls.OP_N, calls.OP_T
        first, second, result = matmul.first, matmul.second, matmul.made
        with translated(self._operation):
            handle = self._library.current_handle()
            calls.set_stream(handle, stream)
            calls.gemm(
                *(handle, operations[first.is_turned], operations[second.is_turned]),
                *(result.rows, result.columns, self._operation["k"], self._one.ctypes.data),
                *(right, self._dtype, first.leading, first.batch_stride),
                *(left, self._dtype, second.leading, second.batch_stride),
                *(self._zero.ctypes.data, made, self._dtype, result.leading),
                *(result.batch_stride, self._operation["batch"]),
                *(self._compute, calls.GEMM_DEFAULT),
            )


@functools.cache
def _library() -> Cublas:
    with late_imports:
        import cupy
        from cupy_backends.cuda.libs import cublas  # noqa: F401  loads the library

    calls = load_calls(cupy.cuda.runtime.runtimeGetVersion() // 1000)
    return Cublas(calls, cupy.cuda.device.get_cublas_handle)
