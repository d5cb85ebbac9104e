"""Our matrices in the words of a library for which memory is column by column."""

from __future__ import annotations

import pytest

from aioinfer.backends.cuda.matrix_layout import StoredMatrix, column_matmul, stored_transposed
from unit.backends.cuda.libraries.column_memory import matmul_operation


@pytest.mark.parametrize(
    ("rows", "columns", "strides", "wanted"),
    [
        (3, 5, (5, 1), StoredMatrix(5, 3, 5, False, 0)),
        (3, 5, (8, 1), StoredMatrix(5, 3, 8, False, 0)),
        (3, 5, (1, 3), StoredMatrix(3, 5, 3, True, 0)),
        (3, 5, (1, 7), StoredMatrix(3, 5, 7, True, 0)),
        (1, 5, (0, 1), StoredMatrix(5, 1, 5, False, 0)),
        (1, 5, (1, 9), StoredMatrix(1, 5, 9, True, 0)),
        (3, 1, (7, 4), StoredMatrix(1, 3, 7, False, 0)),
        (1, 1, (1, 1), StoredMatrix(1, 1, 1, False, 0)),
    ],
)
def test_rows_become_columns(
    rows: int, columns: int, strides: tuple[int, int], wanted: StoredMatrix
) -> None:
    assert stored_transposed(rows, columns, strides) == wanted


@pytest.mark.parametrize("strides", [(10, 2), (2, 6), (4, 1), (1, 2), (0, 1)])
def test_what_is_no_dense_row_or_column_cannot_be_read(strides: tuple[int, int]) -> None:
    assert stored_transposed(3, 5, strides) is None


def test_the_second_matrix_comes_first() -> None:
    found = column_matmul(matmul_operation(a_batch_stride=15, b_strides=(1, 5), batch=2))
    assert found.first == StoredMatrix(5, 4, 5, True, 0)
    assert found.second == StoredMatrix(5, 3, 5, False, 15)
    assert found.made == StoredMatrix(4, 3, 4, False, 12)


def test_strides_that_cannot_be_read_are_named() -> None:
    with pytest.raises(ValueError, match=r"\(10, 2\)"):
        column_matmul(matmul_operation(a_strides=(10, 2)))
