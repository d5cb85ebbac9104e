"""Which matmuls read weights of 16 bits."""

from __future__ import annotations

import pytest

from aioinfer.backends.cpu.passes.half_fusion import (
    CACHED_BYTES,
    FEWEST_BYTES,
    MOST_ROWS,
    is_worth_it,
)


@pytest.mark.parametrize(
    ("rows", "weight_bytes", "all_bytes", "is_taken"),
    [
        (1, FEWEST_BYTES, FEWEST_BYTES, True),
        (1, FEWEST_BYTES - 1, 2 * CACHED_BYTES, False),
        (0, FEWEST_BYTES, 2 * CACHED_BYTES, False),
        (2, FEWEST_BYTES, CACHED_BYTES, False),
        (2, FEWEST_BYTES, CACHED_BYTES + 1, True),
        (MOST_ROWS, FEWEST_BYTES, 2 * CACHED_BYTES, True),
        (MOST_ROWS + 1, FEWEST_BYTES, 2 * CACHED_BYTES, False),
    ],
)
def test_few_rows_and_weights_that_no_cache_holds_are_worth_it(
    rows: int, weight_bytes: int, all_bytes: int, is_taken: bool
) -> None:
    assert is_worth_it(rows, weight_bytes, all_bytes) is is_taken
