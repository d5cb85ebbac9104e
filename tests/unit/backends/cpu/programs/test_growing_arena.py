"""The memory of one stream: what it keeps when it grows, and what others keep of it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from aioinfer.backends.cpu.programs.growing_arena import GrowingArena

SMALL, LARGE = 1000, 100 << 20


def test_memory_is_aligned_and_as_long_as_it_was_asked_for() -> None:
    arena = GrowingArena()
    for size in (1, SMALL, LARGE, SMALL):
        arena.reserve(size)
        assert arena.memory.nbytes >= size
        assert arena.memory.ctypes.data % 64 == 0
        assert arena.memory.flags.writeable
    assert arena.used_bytes == LARGE


def test_what_fits_stays_where_it_is() -> None:
    arena = GrowingArena()
    arena.reserve(SMALL)
    memory = arena.memory
    arena.reserve(memory.nbytes)
    assert arena.memory is memory


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux makes mappings longer")
def test_growing_keeps_the_pages() -> None:
    arena = GrowingArena()
    arena.reserve(SMALL)
    arena.memory[:] = 7
    length = arena.memory.nbytes
    arena.reserve(LARGE)
    assert (arena.memory[:length] == 7).all()
    assert not arena.memory[length:].any()


def test_what_somebody_holds_stays_as_it_is() -> None:
    arena = GrowingArena()
    arena.reserve(SMALL)
    held = arena.memory[:SMALL]
    held[:] = 7
    arena.reserve(LARGE)
    arena.memory[:] = 1
    assert (held == 7).all()
    assert not np.shares_memory(held, arena.memory)


def test_memory_that_cannot_be_had_is_asked_for_in_vain_and_no_more() -> None:
    arena = GrowingArena()
    arena.reserve(SMALL)
    with pytest.raises(MemoryError, match="MiB to compute in"):
        arena.reserve(1 << 60)
    assert arena.used_bytes == SMALL
    arena.reserve(SMALL)
    arena.memory[:SMALL] = 7
