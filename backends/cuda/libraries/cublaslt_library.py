"""Matmuls by cuBLASLt, through nvmath's bindings, which release the GIL.

A plan has the descriptors of one operation and one of the algorithms that the library's heuristics
recommend for it. An algorithm is 64 bytes that mean something to one version of the library. What a
plan points to (descriptors, the algorithm, the two factors) lives as long as the plan. The bias is
an attribute of a descriptor, so launches of one plan take turns.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...accelerator.queues.driver import DriverError, ErrorKind
from ...accelerator.queues.library_operation import LibraryOperation
from ..matrix_layout import StoredMatrix, column_matmul
from .library_errors import translated

__all__ = ["CublasLt", "MatmulPlan"]

Array = np.ndarray[Any, Any]

_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
"""Element types by their numbers in ``cudaDataType``."""

_EPILOGUES = {None: "", "relu": "RELU", "gelu_tanh": "GELU"}
_SOME_ADDRESS = 256
"""Of a bias, until a launch says where it is: some versions plan nothing for address 0."""


class CublasLt:
    """The library in this process. Thread-safe.

    ``cublaslt`` and ``cublas`` are nvmath's bindings, or what a test gives for them; ``on_device``
    makes a device the thread's current one for a while. ``version`` is the library's number.
    """

    def __init__(
        self, cublaslt: Any, cublas: Any, on_device: Callable[[int], AbstractContextManager[Any]]
    ) -> None:
        self.cublaslt, self._cublas, self._on_device = cublaslt, cublas, on_device
        self.version = str(cublaslt.get_version())
        self._lock = threading.Lock()
        self._handles: dict[int, int] = {}

    def candidates(
        self, operation: LibraryOperation, device_id: int, count: int
    ) -> list[MatmulPlan]:
        """Plan in up to a given number of ways, the one that should be fastest first.

        Raises DriverError, also where there is none. Blocks for the time of the heuristics.
        """
        with self._on_device(device_id), translated(operation):
            handle = self._handle(device_id)
            problem = _Problem(self.cublaslt, self._cublas, operation)
            found = problem.algorithms(handle, count)
        if not found:
            raise DriverError(ErrorKind.OTHER, f"cuBLASLt has no algorithm for {operation}")
        return [MatmulPlan(self.cublaslt, handle, problem, *one) for one in found]

    def restored(self, operation: LibraryOperation, device_id: int, blob: bytes) -> MatmulPlan:
        """Plan with the algorithm of an earlier plan, if the library still takes it.

        Raises DriverError if it does not, or if there is no device for it.
        """
        with self._on_device(device_id), translated(operation):
            handle = self._handle(device_id)
            problem = _Problem(self.cublaslt, self._cublas, operation)
            algorithm, workspace_bytes = problem.checked(handle, blob)
        return MatmulPlan(self.cublaslt, handle, problem, algorithm, workspace_bytes)

    def _handle(self, device_id: int) -> int:
        """Return the device's handle, for all threads; it stays until the process ends."""
        with self._lock:
            if device_id not in self._handles:
                self._handles[device_id] = self.cublaslt.create()
            return self._handles[device_id]


class _Problem:
    """The descriptors of an operation: what is multiplied, how it lies, and what follows.

    A launch holds ``lock`` from ``set_bias`` on, until the library has been called.
    """

    def __init__(self, cublaslt: Any, cublas: Any, operation: LibraryOperation) -> None:
        self._cublaslt, self.operation = cublaslt, operation
        self.lock = threading.Lock()
        self._attributes = cublaslt.MatmulDescAttribute
        self._dtype = _TYPES[operation["dtype"]]
        matmul = column_matmul(operation)
        is_tf32 = operation["has_tf32"] and operation["dtype"] == "float32"
        compute = "COMPUTE_32F_FAST_TF32" if is_tf32 else "COMPUTE_32F"
        self.description = self._own(
            cublaslt.matmul_desc_create(cublas.ComputeType[compute], _TYPES["float32"]),
            cublaslt.matmul_desc_destroy,
        )
        turned = int(cublas.Operation.T), int(cublas.Operation.N)
        for name, matrix in (("TRANSA", matmul.first), ("TRANSB", matmul.second)):
            self._describe(name, turned[0] if matrix.is_turned else turned[1])
        self._describe("EPILOGUE", int(cublaslt.Epilogue[self._epilogue()]))
        if operation["has_bias"]:
            self.set_bias(_SOME_ADDRESS)
        self.layouts = [self._layout(item) for item in (matmul.first, matmul.second, matmul.made)]
        self.alpha = np.ones(1, np.float32)
        self.beta = np.full(1, 1.0 if operation["has_residual"] else 0.0, np.float32)

    def set_bias(self, address: int) -> None:
        """Say where the bias of the next launch is."""
        self._describe("BIAS_POINTER", address)

    def algorithms(self, handle: int, count: int) -> list[tuple[Array, int]]:
        """Ask the heuristics for algorithms, with their workspaces, which are small enough."""
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
        return [(np.array([result["algo"]]), int(result["workspace_size"])) for result in usable]

    def checked(self, handle: int, blob: bytes) -> tuple[Array, int]:
        """Return an algorithm by its bytes, with its workspace.

        Raises ValueError, or what the bindings raise, if it is none for this problem.
        """
        cublaslt = self._cublaslt
        dtype = np.dtype(cublaslt.matmul_algo_dtype)
        if len(blob) != dtype.itemsize:
            raise ValueError(f"an algorithm has {dtype.itemsize} bytes, not {len(blob)}")
        algorithm = np.frombuffer(blob, dtype).copy()
        result = np.zeros(1, cublaslt.matmul_heuristic_result_dtype)
        first, second, made = self.layouts
        cublaslt.matmul_algo_check(
            *(handle, self.description, first, second, made, made),
            *(algorithm.ctypes.data, result.ctypes.data),
        )
        workspace_bytes, limit = int(result["workspace_size"][0]), self.operation["workspace_bytes"]
        if result["state"][0] != 0 or workspace_bytes > limit:
            raise ValueError(
                f"an algorithm of status {result['state'][0]}, whose workspace has "
                f"{workspace_bytes} bytes of {limit}, is of no use"
            )
        return algorithm, workspace_bytes

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
    """One algorithm for one operation; several may share a problem.

    ``workspace_bytes`` is what it needs of the operation's workspace. Thread-safe.
    """

    def __init__(
        self,
        cublaslt: Any,
        handle: int,
        problem: _Problem,
        algorithm: Array,
        workspace_bytes: int,
    ) -> None:
        self._cublaslt, self._handle = cublaslt, handle
        self._problem, self._algorithm = problem, algorithm
        self.workspace_bytes = workspace_bytes

    @property
    def blob(self) -> bytes:
        """The algorithm's bytes, for ``CublasLt.restored`` of the same version."""
        return self._algorithm.tobytes()

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
