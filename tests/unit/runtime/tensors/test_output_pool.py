"""Results in memory that is used again once nobody looks at them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from aioinfer.runtime.tensors.output_pool import POOLED_BYTES, OutputPool

F32 = np.dtype(np.float32)
COUNT = POOLED_BYTES // F32.itemsize


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_memory_comes_back_when_the_array_is_gone() -> None:
    pool = OutputPool(2)
    first = pool.empty((COUNT,), F32)
    address = _address(first)
    assert first.shape == (COUNT,)
    assert first.dtype == F32
    assert first.flags.writeable
    assert first.flags.c_contiguous
    del first
    assert _address(pool.empty((2, COUNT // 2), F32)) == address


@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[5:7],
        lambda array: array.reshape(2, -1).T,
        lambda array: memoryview(array),
        lambda array: np.from_dlpack(array),
        lambda array: array.view(np.int32)[0:1][::-1],
    ],
)
def test_any_view_keeps_the_memory(view: object) -> None:
    pool = OutputPool(2)
    array = pool.empty((COUNT,), F32)
    address = _address(array)
    assert callable(view)
    held = view(array)
    del array
    other = pool.empty((COUNT,), F32)
    assert _address(other) != address
    del held
    assert _address(pool.empty((COUNT,), F32)) == address


def test_only_so_many_free_blocks_are_kept() -> None:
    pool = OutputPool(2)
    arrays = [pool.empty((COUNT,), F32) for _ in range(5)]
    addresses = {_address(array) for array in arrays}
    assert len(addresses) == 5
    arrays.clear()
    assert len(pool._free) == 2


def test_sizes_that_come_once_are_forgotten() -> None:
    pool = OutputPool(4)
    for rows in range(1, 40):
        pool.empty((rows, COUNT), F32)
    assert len(pool._free) == 4
    sizes = [block.nbytes // POOLED_BYTES for block in pool._free]
    assert sorted(sizes) == [36, 37, 38, 39]


def test_small_results_and_texts_are_numpys_own() -> None:
    pool = OutputPool(2)
    assert pool.empty((3,), F32).base is None
    assert pool.empty((COUNT,), np.dtype(object)).base is None
    assert not pool._free


@pytest.mark.parametrize("dtype", ["float16", "int64", "bool", "complex64"])
def test_types_of_all_sizes(dtype: str) -> None:
    array = OutputPool(1).empty((3, POOLED_BYTES), np.dtype(dtype))
    assert array.dtype == dtype
    assert array.shape == (3, POOLED_BYTES)
    array[...] = 1
    assert array.all()


def test_a_pool_may_be_gone_before_its_arrays() -> None:
    array = OutputPool(1).empty((COUNT,), F32)
    array.fill(2)
    assert array.sum() == 2 * COUNT


def test_threads_never_share_a_block() -> None:
    pool = OutputPool(4)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            array = pool.empty((COUNT,), F32)
            array.fill(number)
            if not (array[::997] == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
