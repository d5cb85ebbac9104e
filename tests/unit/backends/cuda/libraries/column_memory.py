"""Matrices in host memory as cuBLAS documents them: column by column, at an address."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation

__all__ = ["CUDA_TYPES", "Array", "column_major", "laid_out", "matmul_operation", "number_at"]

Array = np.ndarray[Any, Any]

CUDA_TYPES = {0: np.float32, 2: np.float16, 14: ml_dtypes.bfloat16}
"""Element types by their numbers in ``cudaDataType``."""


def column_major(
    address: int, dtype: int, rows: int, columns: int, leading: int, batch: int, batch_stride: int
) -> Array:
    """See memory as (batch, rows, columns); writing to it writes there."""
    kind = np.dtype(CUDA_TYPES[dtype])
    assert leading >= rows
    count = (batch - 1) * batch_stride + (columns - 1) * leading + rows
    data = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    flat = np.frombuffer(data, np.uint8).view(kind)
    strides = [number * kind.itemsize for number in (batch_stride, 1, leading)]
    return np.lib.stride_tricks.as_strided(flat, (batch, rows, columns), strides)


def number_at(address: int, dtype: Any) -> Any:
    """Read one number."""
    kind = np.dtype(dtype)
    data = (ctypes.c_uint8 * kind.itemsize).from_address(address)
    return np.frombuffer(bytes(data), kind)[0]


def laid_out(array: Array, strides: Sequence[int], batch_stride: int) -> Array:
    """Give flat memory that has the matrices of (batch, rows, columns) at these strides."""
    batch, rows, columns = array.shape
    length = (batch - 1) * batch_stride + (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1
    memory = np.full(length, np.nan, array.dtype)
    places = [number * array.itemsize for number in (batch_stride, *strides)]
    np.lib.stride_tricks.as_strided(memory, array.shape, places)[...] = array
    return memory


def matmul_operation(library: str = "cublaslt", **changes: Any) -> LibraryOperation:
    """Name a matmul of 3 x 5 and 5 x 4, but for ``changes``."""
    parameters: dict[str, Any] = {
        "dtype": "float32",
        **{"batch": 1, "m": 3, "n": 4, "k": 5},
        **{"a_strides": (5, 1), "b_strides": (4, 1)},
        **{"a_batch_stride": 0, "b_batch_stride": 0},
        **{"has_bias": False, "has_residual": False, "activation": None},
        **{"has_tf32": False, "workspace_bytes": 1 << 20},
    }
    return LibraryOperation.of(library, "matmul", **{**parameters, **changes})
