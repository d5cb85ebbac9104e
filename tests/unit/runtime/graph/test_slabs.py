"""Memory for large constants: apart from the allocator, and gone with the last array of a slab."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
import threading
import weakref

import numpy as np
import pytest

from aioinfer.runtime.graph.slabs import ONE_THREAD_BYTES, SLAB_BYTES, SMALL_BYTES, Slabs


@pytest.mark.parametrize("size", [0, 1, 63, SMALL_BYTES - 1, SMALL_BYTES, 1 << 20, SLAB_BYTES + 1])
def test_memory_is_aligned_writeable_and_as_long_as_asked(size: int) -> None:
    memory = Slabs().empty(size)
    assert memory.dtype == np.uint8
    assert memory.shape == (size,)
    assert memory.ctypes.data % 64 == 0 or not size
    memory[:] = 7
    assert (memory == 7).all()


def test_arrays_of_one_slab_do_not_overlap() -> None:
    slabs = Slabs()
    arrays = [slabs.empty(SMALL_BYTES + 100 * index) for index in range(600)]
    for index, array in enumerate(arrays):
        array[:] = index % 251
    assert all((array == index % 251).all() for index, array in enumerate(arrays))


def _pages(array: np.ndarray) -> object:
    """The mapping below an array: the object that every array of a slab keeps alive."""
    base = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base.obj if isinstance(base, memoryview) else base


def test_a_slab_goes_with_its_last_array() -> None:
    slabs = Slabs()
    first, second = slabs.empty(SMALL_BYTES), slabs.empty(SMALL_BYTES)
    pages = weakref.ref(_pages(first))
    assert pages() is _pages(second)
    del slabs, first
    gc.collect()
    assert pages() is not None
    del second
    gc.collect()
    assert pages() is None


def test_what_does_not_fit_into_the_slab_gets_a_new_one() -> None:
    slabs = Slabs()
    first, second = slabs.empty(SMALL_BYTES), slabs.empty(SLAB_BYTES + SMALL_BYTES)
    assert _pages(first) is not _pages(second)


@pytest.mark.skipif(
    sys.platform != "linux" or tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14),
    reason="this system brings pages one by one",
)
@pytest.mark.parametrize(
    ("size", "are_there"), [(ONE_THREAD_BYTES, True), (ONE_THREAD_BYTES + 1, False)]
)
def test_pages_of_what_one_thread_fills_are_there_at_once(size: int, are_there: bool) -> None:
    assert (_resident_share(Slabs().empty(size)) > 0.99) is are_there


def _resident_share(memory: np.ndarray) -> float:
    """Ask which pages of an array are in memory; how many come with one fault does not matter."""
    address = memory.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    length = memory.ctypes.data + memory.nbytes - address
    pages = np.zeros(-(-length // mmap.PAGESIZE), np.uint8)
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    assert mincore(address, length, pages.ctypes.data) == 0, os.strerror(ctypes.get_errno())
    return float((pages & 1).mean())


def test_threads_get_memory_of_their_own() -> None:
    slabs = Slabs()
    taken: list[list[np.ndarray]] = [[] for _ in range(4)]

    def take(index: int) -> None:
        for _ in range(50):
            memory = slabs.empty(SMALL_BYTES)
            memory[:] = index
            taken[index].append(memory)

    threads = [threading.Thread(target=take, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((memory == index).all() for index in range(4) for memory in taken[index])
