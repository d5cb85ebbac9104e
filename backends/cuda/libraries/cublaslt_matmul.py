"""Products of matrices by cuBLASLt, through nvmath's bindings, which release the GIL.

A plan has the descriptors of one operation and one of the algorithms that the library's heuristics
recommend for it. What it points to (descriptors, the algorithm, the two factors) lives as long as
the plan. The bias is an attribute of a descriptor, so launches of one plan take turns.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ....runtime.accelerator.driver import DriverError, ErrorKind
from ....runtime.accelerator.library_operation import LibraryOperation
from ..matrix_layout import StoredMatrix, column_product
from .library_errors import translated

if TYPE_CHECKING:
    from .planned import Planned

__all__ = ["CANDIDATES", "CublasLt", "MatmulPlan", "candidates", "is_installed", "plan"]

Array = np.ndarray[Any, Any]

CANDIDATES = 8
"""How many algorithms are worth timing: the heuristics order them by what they expect."""

_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""Element types by their numbers in ``cudaDataType``."""

_EPILOGUES = {None: "", "relu": "RELU", "gelu_tanh": "GELU"}
_SOME_ADDRESS = 256
"""Of a bias, until a launch says where it is: some versions plan nothing for address 0."""


def is_installed() -> bool:
    """True if nvmath and cuBLASLt itself can be loaded."""
    try:
        _library().cublaslt.get_version()
    except (ImportError, OSError, RuntimeError):
        return False
    return True


def plan(operation: LibraryOperation, device_id: int) -> Planned:
    """Plan a matmul with the first algorithm of ``candidates``. Raises DriverError."""
    return candidates(operation, device_id, 1)[0]


def candidates(
    operation: LibraryOperation, device_id: int, count: int = CANDIDATES
) -> Sequence[Planned]:
    """Plan a matmul in up to so many ways, the one that should be fastest first.

    Raises DriverError, also where there is none. Blocks for the time of the heuristics.
    """
    return _library().candidates(operation, device_id, count)


class CublasLt:
    """The library in this process. Thread-safe.

    ``cublaslt`` and ``cublas`` are nvmath's bindings, or what a test gives for them; ``on_device``
    makes a device the thread's current one for a while.
    """

    def __init__(
        self, cublaslt: Any, cublas: Any, on_device: Callable[[int], AbstractContextManager[Any]]
    ) -> None:
        self.cublaslt, self._cublas, self._on_device = cublaslt, cublas, on_device
        self._lock = threading.Lock()
        self._handles: dict[int, int] = {}

    def candidates(
        self, operation: LibraryOperation, device_id: int, count: int
    ) -> list[MatmulPlan]:
        """Plan in up to ``count`` ways; see the function of this name."""
        with self._on_device(device_id), translated(operation):
            handle = self._handle(device_id)
            problem = _Problem(self.cublaslt, self._cublas, operation)
            found = problem.algorithms(handle, count)
        if not found:
            raise DriverError(ErrorKind.OTHER, f"cuBLASLt has no algorithm for {operation}")
        return [MatmulPlan(self.cublaslt, handle, problem, algorithm) for algorithm in found]

    def _handle(self, device_id: int) -> int:
        """Give the device's handle, which all threads may use; it stays until the process ends."""
        with self._lock:
            if device_id not in self._handles:
                self._handles[device_id] = self.cublaslt.create()
            return self._handles[device_id]


class _Problem:
    """The descriptors of an operation: what is multiplied, how it lies, and what follows.

    Whoever launches holds ``lock`` from ``set_bias`` on, until the library has been called.
    """

    def __init__(self, cublaslt: Any, cublas: Any, operation: LibraryOperation) -> None:
        self._cublaslt, self.operation = cublaslt, operation
        self.lock = threading.Lock()
        self._attributes = cublaslt.MatmulDescAttribute
        self._dtype = _TYPES[operation["dtype"]]
        product = column_product(operation)
        is_tf32 = operation["has_tf32"] and operation["dtype"] == "float32"
        compute = "COMPUTE_32F_FAST_TF32" if is_tf32 else "COMPUTE_32F"
        self.description = self._own(
            cublaslt.matmul_desc_create(cublas.ComputeType[compute], _TYPES["float32"]),
            cublaslt.matmul_desc_destroy,
        )
        turned = int(cublas.Operation.T), int(cublas.Operation.N)
        for name, matrix in (("TRANSA", product.first), ("TRANSB", product.second)):
            self._describe(name, turned[0] if matrix.is_turned else turned[1])
        self._describe("EPILOGUE", int(cublaslt.Epilogue[self._epilogue()]))
        if operation["has_bias"]:
            self.set_bias(_SOME_ADDRESS)
        self.layouts = [
            self._layout(item) for item in (product.first, product.second, product.made)
        ]
        self.alpha = np.ones(1, np.float32)
        self.beta = np.full(1, 1.0 if operation["has_residual"] else 0.0, np.float32)

    def set_bias(self, address: int) -> None:
        """Say where the bias of the next launch is."""
        self._describe("BIAS_POINTER", address)

    def algorithms(self, handle: int, count: int) -> list[Array]:
        """Ask the heuristics for algorithms whose workspace is small enough."""
        cublaslt = self._cublaslt
        preference = cublaslt.matmul_preference_create()
        try:
            limit = cublaslt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
            dtype = cublaslt.get_matmul_preference_attribute_dtype(limit)
            number = np.array([self.operation["workspace_bytes"]], dtype)
            cublaslt.matmul_preference_set_attribute(
                preference, int(limit), number.ctypes.data, number.nbytes
            )
            results = np.zeros(count, cublaslt.matmul_heuristic_result_dtype)
            returned = np.zeros(1, np.int32)
            first, second, made = self.layouts
            cublaslt.matmul_algo_get_heuristic(
                *(handle, self.description, first, second, made, made, preference),
                *(count, results.ctypes.data, returned.ctypes.data),
            )
        finally:
            cublaslt.matmul_preference_destroy(preference)
        usable = (result for result in results[: int(returned[0])] if result["state"] == 0)
        return [np.array([result["algo"]]) for result in usable]

    def _epilogue(self) -> str:
        parts = [_EPILOGUES[self.operation["activation"]]]
        parts += ["BIAS"] if self.operation["has_bias"] else []
        return "_".join(filter(None, parts)) or "DEFAULT"

    def _layout(self, matrix: StoredMatrix) -> int:
        cublaslt = self._cublaslt
        layout = self._own(
            cublaslt.matrix_layout_create(self._dtype, matrix.rows, matrix.columns, matrix.leading),
            cublaslt.matrix_layout_destroy,
        )
        numbers = {"BATCH_COUNT": self.operation["batch"]}
        numbers["STRIDED_BATCH_OFFSET"] = matrix.batch_stride
        for name, number in numbers.items():
            attribute = cublaslt.MatrixLayoutAttribute[name]
            given = np.array([number], cublaslt.get_matrix_layout_attribute_dtype(attribute))
            cublaslt.matrix_layout_set_attribute(
                layout, int(attribute), given.ctypes.data, given.nbytes
            )
        return layout

    def _describe(self, name: str, number: int) -> None:
        attribute = self._attributes[name]
        given = np.array([number], self._cublaslt.get_matmul_desc_attribute_dtype(attribute))
        self._cublaslt.matmul_desc_set_attribute(
            self.description, int(attribute), given.ctypes.data, given.nbytes
        )

    def _own(self, made: int, destroy: Callable[[int], None]) -> int:
        weakref.finalize(self, destroy, made).atexit = False
        return made


class MatmulPlan:
    """One algorithm for one operation; several may share a problem."""

    def __init__(self, cublaslt: Any, handle: int, problem: _Problem, algorithm: Array) -> None:
        self._cublaslt, self._handle = cublaslt, handle
        self._problem, self._algorithm = problem, algorithm

    def enqueue(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueue a launch: a, b, bias and residual as the operation has them, d, workspace."""
        problem = self._problem
        operation = problem.operation
        left, right, *extra, made, workspace = addresses
        first, second, layout = problem.layouts
        residual = extra[-1] if operation["has_residual"] else made
        with problem.lock, translated(operation):
            if operation["has_bias"]:
                problem.set_bias(extra[0])
            self._cublaslt.matmul(
                *(self._handle, problem.description, problem.alpha.ctypes.data),
                *(right, first, left, second, problem.beta.ctypes.data),
                *(residual, layout, made, layout, self._algorithm.ctypes.data),
                *(workspace, operation["workspace_bytes"], stream),
            )


@functools.cache
def _library() -> CublasLt:
    import cupy
    from nvmath.bindings import cublas, cublasLt

    return CublasLt(cublasLt, cublas, cupy.cuda.Device)
