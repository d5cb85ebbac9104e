"""What can be described is decided without the library."""

from __future__ import annotations

import pytest

from aioinfer.backends.cpu.onednn.descs import (
    can_describe,
    dims_of,
    dtype_number,
    is_overlapping,
    lengths_of,
)
from aioinfer.backends.cpu.onednn.handles import OneDnnError
from aioinfer.backends.cpu.onednn.numbers import MAX_COUNT, MAX_LENGTH, MAX_RANK
from aioinfer.runtime.graph import DType


@pytest.mark.parametrize(
    ("dims", "strides", "overlapping"),
    [
        ((2, 3), (3, 1), False),
        ((2, 3), (1, 2), False),
        ((2, 3), (4, 1), False),
        ((2, 3), (2, 1), True),
        ((2, 3), (0, 1), False),
        ((1, 3), (1, 1), False),
        ((3,), (-1,), True),
        ((), (), False),
    ],
)
def test_axes_overlap_where_one_begins_before_the_smaller_one_ends(
    dims: tuple[int, ...], strides: tuple[int, ...], overlapping: bool
) -> None:
    assert is_overlapping(dims, strides) is overlapping


def test_memory_is_described_if_type_rank_and_strides_allow_it() -> None:
    assert can_describe((2, 3), DType.FLOAT32, (3, 1))
    assert can_describe((), DType.FLOAT32, ())
    assert can_describe((2, 0), DType.FLOAT32, (-1, -1)), "no element lies anywhere"
    assert not can_describe((2, 3), DType.FLOAT32, (2, 1))
    assert not can_describe((2, 3), DType.STRING, (3, 1))
    ones = (1,) * (MAX_RANK + 1)
    assert not can_describe(ones, DType.FLOAT32, ones)


@pytest.mark.parametrize(
    "dims", [(-1,), (MAX_LENGTH + 1,), (MAX_LENGTH, MAX_COUNT), (1,) * (MAX_RANK + 1)]
)
def test_lengths_that_onednn_cannot_count_are_refused(dims: tuple[int, ...]) -> None:
    with pytest.raises(OneDnnError, match="descriptor of"):
        lengths_of(dims)


def test_numbers_of_any_size_become_its_arrays() -> None:
    assert list(lengths_of((2, 3)))[:2] == [2, 3]
    assert list(dims_of((-5, 1 << 40)))[:2] == [-5, 1 << 40]
    with pytest.raises(OneDnnError, match="string"):
        dtype_number(DType.STRING)
