"""Products of matrices by cuBLAS as CuPy has it: without bias, residual sum or activation.

CuPy keeps a handle for each thread and device, and lets it work on the thread's current stream.
The handle has a workspace of its own, so the one that a launch brings along is not used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.accelerator.driver import DriverError, ErrorKind
from ....runtime.accelerator.library_operation import LibraryOperation
from ..matrix_layout import column_product
from .library_errors import translated

if TYPE_CHECKING:
    from .planned import Planned

__all__ = ["Cublas", "is_installed", "plan"]

_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""Element types by their numbers in ``cudaDataType``."""


def is_installed() -> bool:
    """True if CuPy's bindings of cuBLAS, and so the library, can be loaded."""
    try:
        _library()
    except (ImportError, OSError):
        return False
    return True


def plan(operation: LibraryOperation, device_id: int) -> Planned:
    """Plan a matmul; raises DriverError for one with more than a product."""
    return _library().plan(operation)


class Cublas:
    """The library in this process. Thread-safe.

    ``cublas`` are CuPy's bindings, or what a test gives for them; ``current_handle`` gives the
    handle of the thread and its device, and ``on_stream`` makes a stream the thread's current one.
    """

    def __init__(
        self,
        cublas: Any,
        current_handle: Callable[[], int],
        on_stream: Callable[[int], AbstractContextManager[Any]],
    ) -> None:
        self.cublas, self.current_handle, self.on_stream = cublas, current_handle, on_stream

    def plan(self, operation: LibraryOperation) -> ProductPlan:
        """Plan a matmul; see the function of this name."""
        follows = [name for name in ("has_bias", "has_residual", "activation") if operation[name]]
        if follows:
            names = ", ".join(follows)
            raise DriverError(ErrorKind.OTHER, f"cublas has no {names}; asked for {operation}")
        with translated(operation):
            return ProductPlan(self, operation)


class ProductPlan:
    """The arguments of one call but for the addresses; immutable."""

    def __init__(self, library: Cublas, operation: LibraryOperation) -> None:
        self._library, self._operation = library, operation
        self._product = column_product(operation)
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        cublas, dtype = library.cublas, operation["dtype"]
        self._dtype = _TYPES[dtype]
        is_tf32 = dtype == "float32" and operation["has_tf32"]
        compute = "CUBLAS_COMPUTE_32F_FAST_TF32" if is_tf32 else "CUBLAS_COMPUTE_32F"
        self._compute = getattr(cublas, compute)

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueue a launch: a, b, d, workspace."""
        left, right, made, _ = addresses
        cublas, product = self._library.cublas, self._product
        operations = cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T
        first, second, result = product.first, product.second, product.made
        with self._library.on_stream(stream), translated(self._operation):
            cublas.gemmStridedBatchedEx(
                *(self._library.current_handle(), operations[first.is_turned]),
                *(operations[second.is_turned], result.rows, result.columns),
                *(self._operation["k"], self._one.ctypes.data),
                *(right, self._dtype, first.leading, first.batch_stride),
                *(left, self._dtype, second.leading, second.batch_stride),
                *(self._zero.ctypes.data, made, self._dtype, result.leading),
                *(result.batch_stride, self._operation["batch"]),
                *(self._compute, cublas.CUBLAS_GEMM_DEFAULT),
            )


class _ForeignStream:
    """A stream that CuPy did not make, by its protocol for such."""

    def __init__(self, stream: int) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._stream


@functools.cache
def _library() -> Cublas:
    import cupy
    from cupy_backends.cuda.libs import cublas

    def on_stream(stream: int) -> AbstractContextManager[Any]:
        made: AbstractContextManager[Any] = cupy.cuda.Stream.from_external(_ForeignStream(stream))
        return made

    return Cublas(cublas, cupy.cuda.device.get_cublas_handle, on_stream)
