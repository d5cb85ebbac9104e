"""Rows joined and split again."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pytest

from aioinfer.backends.batch.rows import join_rows, rows_of, split_rows
from aioinfer.errors import GraphError


def rows(count: int, length: int = 3, dtype: type = np.float32) -> np.ndarray:
    return np.arange(count * length, dtype=dtype).reshape(count, length)


ALONE = (1, None)


def test_rows_are_counted_where_all_inputs_agree() -> None:
    assert rows_of({"a": rows(2), "b": rows(2, 1)}, ["a", "b"])[0] == 2
    assert rows_of({"a": rows(2), "b": rows(1, 1)}, ["a", "b"]) == ALONE
    assert rows_of({"a": np.array(1)}, ["a"]) == ALONE
    assert rows_of({"a": object()}, ["a"]) == ALONE
    assert rows_of({"a": rows(0)}, ["a"]) == ALONE


def test_only_equal_types_and_other_lengths_have_the_same_key() -> None:
    def key(array: np.ndarray) -> Hashable:
        return rows_of({"a": array}, ["a"])[1]

    assert key(rows(2)) == key(rows(5))
    assert key(rows(2)) != key(rows(2, 4))
    assert key(rows(2)) != key(rows(2, dtype=np.float64))


def test_joined_rows_come_back_as_views_of_each_one_s_own() -> None:
    first, second = rows(1), np.asfortranarray(rows(2) + 10)
    joined = join_rows([{"a": first}, {"a": second}], ["a"], np.empty)["a"]
    lines = np.repeat(joined, 2, axis=0)  # two lines for each row
    constant = np.float32([7])
    results = {"joined": joined, "lines": lines, "constant": constant}
    one, two = split_rows(results, {"joined", "lines"}, [1, 2])
    np.testing.assert_array_equal(one["joined"], first)
    np.testing.assert_array_equal(two["joined"], second)
    assert two["joined"].base is joined
    np.testing.assert_array_equal(one["lines"], np.repeat(first, 2, axis=0))
    np.testing.assert_array_equal(two["lines"], np.repeat(second, 2, axis=0))
    two["constant"][0] = 0  # each one's own
    assert one["constant"] == 7


def test_lines_that_cannot_be_told_apart_are_an_error() -> None:
    with pytest.raises(GraphError, match=r"output 'y' is \[5,3\] for 3 rows"):
        split_rows({"y": rows(5)}, {"y"}, [1, 2])
