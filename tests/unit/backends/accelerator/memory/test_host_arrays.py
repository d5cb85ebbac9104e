"""Copies to staging memory: what is copied, and how it is divided among threads."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.backends.accelerator.memory.host_arrays import Copy, parts_of, staging_copies

GIVEN = {
    "dense": np.arange(840).reshape(7, 10, 12),
    "transposed": np.arange(840).reshape(12, 10, 7).T,
    "strided": np.arange(1680).reshape(7, 10, 24)[:, :, ::2],
    "one row": np.arange(840).reshape(1, 840),
    "a number": np.array(7),
    "nothing": np.zeros((0, 4), np.int64),
}


def done(copies: list[Copy]) -> None:
    for target, source in copies:
        np.copyto(target, source, casting="no")


@pytest.mark.parametrize("part_bytes", [8, 100, 1000, 10**6])
@pytest.mark.parametrize("name", GIVEN)
def test_parts_copy_every_element_once_whatever_their_size(name: str, part_bytes: int) -> None:
    given = GIVEN[name]
    staged = np.full(given.shape, -1, given.dtype)
    parts = parts_of(staging_copies("x", given, staged), part_bytes)
    targets = [target for part in parts for target, _ in part]
    assert sum(target.size for target in targets) == given.size
    for part in parts:
        done(part)
    np.testing.assert_array_equal(staged, given)


def test_a_large_dense_array_is_divided_evenly_and_small_ones_go_together() -> None:
    arrays = [np.zeros(size, np.uint8) for size in (10_000, 10, 10, 10)]
    copies = [copy for array in arrays for copy in staging_copies("x", array, np.empty_like(array))]
    parts = parts_of(copies, 2500)
    assert [[target.nbytes for target, _ in part] for part in parts] == [
        *[[2500]] * 4,
        [10, 10, 10],
    ]


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_the_last_row_that_is_given_fills_the_others(rows: int) -> None:
    given, staged = np.arange(rows * 4).reshape(rows, 4), np.full((5, 4), -1)
    for part in parts_of(staging_copies("x", given, staged, rows), 16):
        done(part)
    np.testing.assert_array_equal(staged[:rows], given)
    np.testing.assert_array_equal(staged[rows:], np.repeat(given[-1:], 5 - rows, axis=0))
