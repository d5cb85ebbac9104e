"""cuBLASLt's bindings without a device: descriptors are kept, and matmuls computed from them.

Names, numbers and types are those of nvmath's bindings; addresses are of host memory.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import math
from typing import Any

import numpy as np

from unit.backends.cuda.libraries.column_memory import CUDA_TYPES, column_major, number_at

__all__ = ["FakeCublas", "FakeCublasLt", "LtError"]


class LtError(Exception):
    """What the bindings raise."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class FakeCublas:
    """The part of ``nvmath.bindings.cublas`` that cuBLASLt is used with."""

    class ComputeType(enum.IntEnum):
        COMPUTE_32F = 68
        COMPUTE_32F_FAST_TF32 = 77

    class Operation(enum.IntEnum):
        N = 0
        T = 1


class FakeCublasLt:
    """``nvmath.bindings.cublasLt``; ``algorithms`` are what heuristics find: (number, bytes).

    Those in ``failing_launches`` cannot be launched, those in ``spoiling`` give NaN.
    ``launches`` notes the algorithm, workspace and stream of each matmul, and its compute type,
    ``checked`` the algorithms that were to be checked.
    """

    class MatmulDescAttribute(enum.IntEnum):
        TRANSA = 3
        TRANSB = 4
        EPILOGUE = 7
        BIAS_POINTER = 8

    class MatrixLayoutAttribute(enum.IntEnum):
        BATCH_COUNT = 5
        STRIDED_BATCH_OFFSET = 6

    class MatmulPreferenceAttribute(enum.IntEnum):
        MAX_WORKSPACE_BYTES = 1

    class Epilogue(enum.IntEnum):
        DEFAULT = 1
        RELU = 2
        BIAS = 4
        RELU_BIAS = 6
        GELU = 32
        GELU_BIAS = 36

    matmul_algo_dtype = np.dtype([("data_", "<u8", (8,))])
    matmul_heuristic_result_dtype = np.dtype(
        [
            ("algo", matmul_algo_dtype),
            ("workspace_size", "<u8"),
            ("state", "<i4"),
            ("waves_count", "<f4"),
            ("reserved", "<i4", (4,)),
        ]
    )

    def __init__(self) -> None:
        self.algorithms: list[tuple[int, int]] = [(11, 0), (12, 4096), (13, 1 << 30)]
        self.failing_states: dict[int, int] = {}
        self.failing_launches: set[int] = set()
        self.spoiling: set[int] = set()
        self.version = 130000
        self.checked: list[int] = []
        self.alive: dict[int, dict[Any, Any]] = {}
        self.handles: list[int] = []
        self.launches: list[dict[str, int]] = []
        self.error: LtError | None = None
        self._numbers = itertools.count(1000)

    def create(self) -> int:
        self.handles.append(next(self._numbers))
        return self.handles[-1]

    def get_matmul_desc_attribute_dtype(self, attribute: int) -> Any:
        return {3: np.int32, 4: np.int32, 7: np.uint32, 8: np.int64}[attribute]

    def get_matrix_layout_attribute_dtype(self, attribute: int) -> Any:
        return {5: np.int32, 6: np.int64}[attribute]

    def get_matmul_preference_attribute_dtype(self, attribute: int) -> Any:
        return {1: np.uint64}[attribute]

    def matmul_desc_create(self, compute_type: int, scale_type: int) -> int:
        assert scale_type == 0  # alpha and beta are float32
        return self._made({"compute": int(compute_type), 3: 0, 4: 0, 7: 1, 8: 0})

    def matrix_layout_create(self, dtype: int, rows: int, columns: int, leading: int) -> int:
        assert leading >= rows >= 1
        return self._made({"dtype": dtype, "shape": (rows, columns, leading), 5: 1, 6: 0})

    def matmul_preference_create(self) -> int:
        return self._made({1: 0})

    def matmul_desc_set_attribute(self, made: int, name: int, address: int, size: int) -> None:
        self._set(made, name, address, size, self.get_matmul_desc_attribute_dtype(name))

    def matrix_layout_set_attribute(self, made: int, name: int, address: int, size: int) -> None:
        self._set(made, name, address, size, self.get_matrix_layout_attribute_dtype(name))

    def matmul_preference_set_attribute(
        self, made: int, name: int, address: int, size: int
    ) -> None:
        self._set(made, name, address, size, self.get_matmul_preference_attribute_dtype(name))

    def matmul_desc_destroy(self, made: int) -> None:
        del self.alive[made]

    matrix_layout_destroy = matmul_preference_destroy = matmul_desc_destroy

    def matmul_algo_get_heuristic(self, *given: int) -> None:
        handle, description, first, second, third, made, preference, count, *addresses = given
        assert handle in self.handles
        assert self.alive[third] == self.alive[made]
        self._check_shapes(description, first, second, made)
        if self.error is not None:
            raise self.error
        limit = self.alive[preference][1]
        has_bias = bool(self.alive[description][7] & 4)
        found = [item for item in self.algorithms if item[1] <= limit]
        if has_bias and not self.alive[description][8]:
            found = []  # as some versions have it
        kind = self.matmul_heuristic_result_dtype
        for index, (number, size) in enumerate(found[:count]):
            made_of = self._result(number, size)
            made_of["algo"]["data_"] = number
            _write(addresses[0] + index * kind.itemsize, made_of)
        _write(addresses[1], np.array([min(count, len(found))], np.int32))

    def matmul_algo_check(self, *given: int) -> None:
        handle, description, first, second, third, made, algorithm, result = given
        assert handle in self.handles
        assert third == made
        self._check_shapes(description, first, second, made)
        number = int(number_at(algorithm, np.uint64))
        self.checked.append(number)
        sizes = dict(self.algorithms)
        if number not in sizes:
            raise LtError(15)
        _write(result, self._result(number, sizes[number]))  # its algorithm is left alone

    def matmul(self, *given: int) -> None:
        handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, *rest = given
        d, d_layout, algorithm, workspace, workspace_bytes, stream = rest
        assert handle in self.handles
        if self.error is not None:
            raise self.error
        number = int(number_at(algorithm, np.uint64))
        if number in self.failing_launches:
            raise LtError(15)
        self._check_shapes(description, a_layout, b_layout, d_layout)
        known = self.alive[description]
        left = self._matrices(a, a_layout, bool(known[3]))
        right = self._matrices(b, b_layout, bool(known[4]))
        total = number_at(alpha, np.float32) * (left @ right)
        scale = number_at(beta, np.float32)
        if scale:
            total = total + scale * self._matrices(c, c_layout, False)
        if known[7] & 4:
            layout = self.alive[d_layout]
            rows = layout["shape"][0]
            total = total + column_major(known[8], layout["dtype"], rows, 1, rows, 1, 0)
        if known[7] & 2:
            total = np.maximum(total, 0)
        if known[7] & 32:
            inner = math.sqrt(2 / math.pi) * (total + 0.044715 * total**3)
            total = 0.5 * total * (1 + np.tanh(inner))
        self._raw(d, d_layout)[...] = np.nan if number in self.spoiling else total
        self.launches.append(
            {
                "algorithm": number,
                "workspace": workspace,
                "workspace_bytes": workspace_bytes,
                "stream": stream,
                "compute": known["compute"],
            }
        )

    def get_version(self) -> int:
        return self.version

    def _result(self, number: int, size: int) -> Any:
        made_of = np.zeros(1, self.matmul_heuristic_result_dtype)
        made_of["workspace_size"] = size
        made_of["state"] = self.failing_states.get(number, 0)
        return made_of

    def _made(self, content: dict[Any, Any]) -> int:
        number = next(self._numbers)
        self.alive[number] = content
        return number

    def _set(self, made: int, name: int, address: int, size: int, dtype: Any) -> None:
        assert size == np.dtype(dtype).itemsize
        assert name in self.alive[made]
        self.alive[made][name] = int(number_at(address, dtype))

    def _raw(self, address: int, layout: int) -> Any:
        known = self.alive[layout]
        rows, columns, leading = known["shape"]
        return column_major(address, known["dtype"], rows, columns, leading, known[5], known[6])

    def _matrices(self, address: int, layout: int, is_turned: bool) -> Any:
        array = self._raw(address, layout).astype(np.float64)
        return array.swapaxes(1, 2) if is_turned else array

    def _check_shapes(self, description: int, first: int, second: int, made: int) -> None:
        shapes = [self.alive[layout]["shape"][:2] for layout in (first, second, made)]
        turned = [bool(self.alive[description][name]) for name in (3, 4)]
        (n, k), (k2, m) = (
            shape[::-1] if is_turned else shape
            for shape, is_turned in zip(shapes, turned, strict=False)
        )
        assert k == k2
        assert shapes[2] == (n, m)
        assert len({self.alive[layout][5] for layout in (first, second, made)}) == 1
        assert all(self.alive[layout]["dtype"] in CUDA_TYPES for layout in (first, second, made))


def _write(address: int, array: Any) -> None:
    ctypes.memmove(address, array.ctypes.data, array.nbytes)
