"""A matmul of row-major matrices in the words of cuBLAS, for which memory is column by column.

Row-major memory, read column by column, holds the transposed matrix. So D = A B is computed as
D' = B' A': cuBLAS's first matrix is our second one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..accelerator.queues.library_operation import LibraryOperation

__all__ = ["ColumnMatmul", "StoredMatrix", "column_matmul", "stored_transposed"]


@dataclass(frozen=True)
class StoredMatrix:
    """Memory as cuBLAS sees it: ``rows`` side by side, ``leading`` elements between two columns.

    ``is_turned``: what is stored has to be transposed to be the matrix that is multiplied. The
    matrices of a batch are ``batch_stride`` elements apart.
    """

    rows: int
    columns: int
    leading: int
    is_turned: bool
    batch_stride: int


@dataclass(frozen=True)
class ColumnMatmul:
    """``made`` (n, m) is ``first`` (n, k) @ ``second`` (k, m), batch by batch.

    The bias runs along the rows of ``made``.
    """

    first: StoredMatrix
    second: StoredMatrix
    made: StoredMatrix


def stored_transposed(
    rows: int, columns: int, strides: tuple[int, int], batch_stride: int = 0
) -> StoredMatrix | None:
    """See a matrix of ours as what is multiplied as its transposed; None if cuBLAS cannot read it.

    It can if one of the strides is 1 and the other is no shorter than a row or a column.
    """
    row, column = strides
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return StoredMatrix(columns, rows, max(row, columns), False, batch_stride)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return StoredMatrix(rows, columns, max(column, rows), True, batch_stride)
    return None


def column_matmul(operation: LibraryOperation) -> ColumnMatmul:
    """Translate a matmul; raises ValueError for strides that cuBLAS does not have."""
    m, n, k = (int(operation[name]) for name in ("m", "n", "k"))
    first = stored_transposed(k, n, operation["b_strides"], operation["b_batch_stride"])
    second = stored_transposed(m, k, operation["a_strides"], operation["a_batch_stride"])
    if first is None or second is None:
        strides = f"{operation['a_strides']} and {operation['b_strides']}"
        raise ValueError(f"matrices with strides {strides} are neither row- nor column-major")
    return ColumnMatmul(first, second, StoredMatrix(n, m, n, False, m * n))
