from __future__ import annotations

import pytest

from aioinfer.backends.accelerator.launching.row_groups import RowGroups, block_of_rows


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


@pytest.mark.parametrize(
    ("length", "longest", "count"),
    [(768, 8, 3), (768, 4, 3), (384, 8, 3), (512, 8, 1), (2048, 8, 4)],
)
def test_rows_are_taken_in_blocks_that_work_items_can_keep(
    length: int, longest: int, count: int
) -> None:
    assert block_of_rows(length, longest) == longest
    groups = RowGroups(3, length, block=longest)
    assert len(groups.blocks) == count
    firsts = [int(text.removeprefix("item + ")) for text in groups.blocks]
    taken = [item + first for first in firsts for item in range(groups.items)]
    assert taken == list(range(length // longest))


@pytest.mark.parametrize("length", [4096, 770, 40, 8 * 17])
def test_long_rows_and_those_of_odd_lengths_are_taken_element_by_element(length: int) -> None:
    assert block_of_rows(length, 8) == 1
