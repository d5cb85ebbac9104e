from __future__ import annotations

import pytest

from aioinfer.backends.accelerator.launching.row_groups import RowGroups


@pytest.mark.parametrize(
    ("length", "items"), [(0, 1), (1, 1), (7, 1), (8, 2), (63, 8), (256, 64), (10**6, 64)]
)
def test_a_row_gets_more_work_items_the_longer_it_is(length: int, items: int) -> None:
    groups = RowGroups(rows=10, length=length)
    assert groups.items == items
    assert groups.sizes == ((items, 10), (items, 64 // items))


def test_many_rows_across_memory_get_one_work_item_each() -> None:
    assert RowGroups(rows=1000, length=1000, is_across=True).items == 1
    assert RowGroups(rows=10, length=1000, is_across=True).items == 64
    assert RowGroups(rows=1000, length=10**6, is_across=True).items == 64


def test_a_row_of_one_work_item_needs_no_barrier() -> None:
    assert "barrier" not in RowGroups(4, 5).fold("acc", "", "v", "0.0f", "{a} + {b}")
    assert "barrier" in RowGroups(4, 500).fold("acc", "", "v", "0.0f", "{a} + {b}")
