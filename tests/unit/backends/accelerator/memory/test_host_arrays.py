"""Copies to staging memory: what is copied, and how it is divided among threads."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.backends.accelerator.memory.host_arrays import (
    Copy,
    cost_bytes,
    parts_of,
    staging_copies,
)

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


IMAGE = np.zeros((224, 224, 3), np.uint8)
SQUARE = np.zeros((128, 128), np.float32)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (IMAGE, IMAGE.nbytes),
        (IMAGE.transpose(2, 0, 1), 6 * IMAGE.size),
        (IMAGE.transpose(2, 0, 1).astype(np.float64), 6 * IMAGE.size * 8 // 6),
        (IMAGE[:, :, ::2], 16 * IMAGE.size * 2 // 3),
        (SQUARE[:, :100], 6 * 12800),
        (SQUARE.T, 16 * SQUARE.size),
        (SQUARE.astype(np.complex128)[:, ::-1], 16 * SQUARE.size),
        (SQUARE[::-1, :8], 16 * 128 * 8),
        (np.array(7.0), 8),
        (SQUARE[:0].T, 0),
    ],
)
def test_what_does_not_lie_side_by_side_costs_more_to_copy(source: np.ndarray, wanted: int) -> None:
    assert cost_bytes((np.empty(source.shape, source.dtype), source)) == wanted


def test_a_row_that_is_repeated_costs_what_it_fills() -> None:
    copies = staging_copies("x", SQUARE[:3], np.empty((10, 128), np.float32), 3)
    assert sum(map(cost_bytes, copies)) == 10 * 128 * 4
