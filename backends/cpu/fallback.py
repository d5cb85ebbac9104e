"""The step table walked in Python: the slow way, where there was no C compiler.

Kernels here do with numpy what native_*.c does, with the same operands and parameters; the tests
compare both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any

import numpy as np

from .fallback_elementwise import ELEMENTWISE_KERNELS
from .fallback_pools import POOL_KERNELS
from .fallback_products import PRODUCT_KERNELS
from .fallback_rows import ROW_KERNELS
from .native import (
    KIND_END,
    KIND_KERNEL,
    KIND_PRIMITIVE,
    STATUS_BUFFER,
    STATUS_INDEX,
    STATUS_TABLE,
    view_at,
)
from .onednn import Engine

__all__ = ["KERNELS", "PythonRun"]

Array = np.ndarray[Any, Any]

_ITEMS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _strided(address: int, item: int, dims: Sequence[int], strides: Sequence[int]) -> Array:
    reaches = [(dim - 1) * stride for dim, stride in zip(dims, strides, strict=True)]
    before = -sum(reach for reach in reaches if reach < 0)
    memory = view_at(address - before, sum(map(abs, reaches)) + item)
    return np.ndarray(tuple(dims), _ITEMS[item], memory, before, tuple(strides))


def copy(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Copy between strided layouts; see native_movement.c."""
    item, rank, *axes = parameters
    dims, source, target = axes[0 : 3 * rank : 3], axes[1 : 3 * rank : 3], axes[2 : 3 * rank : 3]
    if 0 in dims:
        return
    _strided(data[1], item, dims, target)[...] = _strided(data[0], item, dims, source)


def fill(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Repeat one item; see native_movement.c."""
    item, count, value = parameters
    view_at(data[0], item * count).view(_ITEMS[item])[...] = value & ((1 << 8 * item) - 1)


def gather(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Take parts by index; see native_movement.c."""
    outer, length, count, part, index_bytes = parameters
    source = view_at(data[0], outer * length * part).reshape(outer, length, part)
    indices = view_at(data[1], count * index_bytes).view(f"i{index_bytes}")
    target = view_at(data[2], outer * count * part).reshape(outer, count, part)
    target[...] = source[:, indices]


def sample_grid(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Take parts of rows and columns by index; see native_movement.c."""
    outer, in_rows, in_columns, rows, columns, part = parameters
    source = view_at(data[0], outer * in_rows * in_columns * part)
    source = source.reshape(outer, in_rows, in_columns, part)
    row_indices = view_at(data[1], 4 * rows).view(np.int32)
    column_indices = view_at(data[2], 4 * columns).view(np.int32)
    target = view_at(data[3], outer * rows * columns * part).reshape(outer, rows, columns, part)
    target[...] = source[:, row_indices[:, None], column_indices]


def resample(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Sum weighted parts of an axis; see native_movement.c."""
    outer, length, count, inner, taps = parameters
    source = _floats(data[0], outer * length * inner).reshape(outer, length, inner)
    indices = view_at(data[1], 4 * count * taps).view(np.int32).reshape(count, taps)
    weights = _floats(data[2], count * taps).reshape(count, taps)
    target = _floats(data[4], outer * count * inner).reshape(outer, count, inner)
    target[...] = _floats(data[3], count)[:, None]
    for tap in range(taps):
        used = weights[:, tap] != 0
        target[:, used] += weights[used, tap, None] * source[:, indices[used, tap]]


def _floats(address: int, count: int) -> Array:
    return view_at(address, 4 * count).view(np.float32)


KERNELS: dict[str, Callable[[Sequence[int], Sequence[int]], None]] = {
    "copy": copy,
    "fill": fill,
    "gather": gather,
    "resample": resample,
    "sample_grid": sample_grid,
    **ELEMENTWISE_KERNELS,
    **ROW_KERNELS,
    **PRODUCT_KERNELS,
    **POOL_KERNELS,
}


def _wrong_buffer(words: Sequence[int], buffers: Sequence[Array]) -> int | None:
    """Find the first buffer that is not as the head of a table says."""
    count, inputs = words[:2]
    for index, (length, buffer) in enumerate(zip(words[2 : 2 + count], buffers, strict=False)):
        if buffer.nbytes != length:
            return index
        if not (buffer.flags.c_contiguous and (index < inputs or buffer.flags.writeable)):
            raise BufferError(f"array {index} is not contiguous, or not writeable")
    return None if len(buffers) == count else min(len(buffers), count)


class PythonRun:
    """``run(table, buffers, threads, times, spent)`` as steps.c has it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kernels = tuple(KERNELS.values())

    def __call__(
        self,
        table: Array,
        buffers: Sequence[Array],
        threads: int,
        times: Array | None = None,
        spent: Array | None = None,
    ) -> tuple[int, int] | None:
        started = time.perf_counter_ns(), time.thread_time_ns()
        failure = self._run(table, buffers, threads, times)
        if spent is not None:
            spent += time.perf_counter_ns() - started[0], time.thread_time_ns() - started[1]
        return failure

    def _run(
        self, table: Array, buffers: Sequence[Array], threads: int, times: Array | None
    ) -> tuple[int, int] | None:
        words = table.tolist()
        wrong = _wrong_buffer(words, buffers)
        if wrong is not None:
            return STATUS_BUFFER, wrong
        words = words[2 + words[0] :]
        starts = [buffer.ctypes.data for buffer in buffers]
        library = self._engine.library
        with self._engine.with_threads(threads), np.errstate(all="ignore"):
            place = 1 + 3 * words[0]
            for binding in range(1, place, 3):
                memory, base, offset = words[binding : binding + 3]
                library.dnnl_memory_set_data_handle(
                    c_void_p(memory), c_void_p(starts[base - 1] + offset)
                )
            readings = [time.perf_counter_ns()]
            step = 0
            while words[place] != KIND_END:
                status = self._step(words[place : place + words[place + 1]], starts)
                if status:
                    return status, step
                readings.append(time.perf_counter_ns())
                place += words[place + 1]
                step += 1
        if times is not None:
            times[: len(readings)] = readings
        return None

    def _step(self, words: list[int], starts: list[int]) -> int:
        if words[0] == KIND_PRIMITIVE:
            _, _, primitive, count, arguments = words
            library = self._engine.library
            return int(
                library.dnnl_primitive_execute(primitive, self._engine.stream, count, arguments)
            )
        count = words[2]
        pairs = zip(words[3 : 3 + 2 * count : 2], words[4 : 4 + 2 * count : 2], strict=True)
        data = [place if base == 0 else starts[base - 1] + place for base, place in pairs]
        kind = words[0] - KIND_KERNEL
        if not 0 <= kind < len(self._kernels):
            return STATUS_TABLE
        try:
            self._kernels[kind](data, words[3 + 2 * count :])
        except IndexError:
            return STATUS_INDEX
        return 0
