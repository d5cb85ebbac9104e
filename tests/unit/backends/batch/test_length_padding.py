"""Sequences padded to a bucket, each element written once, and cut again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.backends.batch.length_padding import LengthAxes, LengthPadding
from aioinfer.errors import GraphError

AXES = LengthAxes({"ids": (1,), "pairs": (1, 2)}, {"y": (2,), "scores": (1, 2)})
NAMES = ("ids", "pairs", "other")
PADDING = LengthPadding((4, 8), AXES, {"ids": 7, "pairs": -1})


def request(length: int, rows: int = 1, *, pairs: int | None = None) -> dict[str, Any]:
    side = length if pairs is None else pairs
    return {
        "ids": np.full((rows, length), 1, np.int64),
        "pairs": np.full((rows, side, side), 2, np.float16),
        "other": np.full((rows, 3), 3, bool),
    }


def key(**inputs: Any) -> Any:
    return PADDING.rows_of(inputs, NAMES)[1]


def test_requests_of_one_bucket_go_together_and_others_with_their_like() -> None:
    keys = {length: key(**request(length)) for length in range(11)}
    assert keys[1] == keys[3] == keys[4]
    assert keys[5] == keys[8]
    assert len({keys[length] for length in (0, 4, 8, 9, 10)}) == 5
    assert None not in keys.values()
    assert key(**request(9)) == keys[9]


def test_lengths_that_contradict_each_other_go_alone() -> None:
    assert PADDING.rows_of(request(3, 2, pairs=4), NAMES) == (1, None)
    lopsided = request(3)
    lopsided["pairs"] = np.zeros((1, 3, 4), np.float16)
    assert key(**lopsided) is None
    assert key(**{**request(3), "other": np.zeros((2, 3), bool)}) is None


def test_other_types_and_other_lengths_do_not_share_a_key() -> None:
    assert key(**request(3)) != key(**{**request(3), "ids": np.zeros((1, 3), np.int32)})
    assert key(**request(3)) != key(**{**request(3), "other": np.zeros((1, 2), bool)})


def test_rows_are_written_beside_their_padding() -> None:
    members = [request(3), request(4, 2), request(1)]
    joined = PADDING.join_rows(members, NAMES, np.empty)
    np.testing.assert_array_equal(
        joined["ids"], [[1, 1, 1, 7], [1, 1, 1, 1], [1, 1, 1, 1], [1, 7, 7, 7]]
    )
    wanted = np.full((4, 4, 4), -1, np.float16)
    wanted[0, :3, :3] = wanted[1:3] = wanted[3, :1, :1] = 2
    np.testing.assert_array_equal(joined["pairs"], wanted)
    assert joined["pairs"].dtype == np.float16
    assert joined["other"].shape == (4, 3)
    assert joined["other"].all()


@pytest.mark.parametrize("length", [4, 9, 0])
def test_what_needs_no_padding_is_joined_as_it_is(length: int) -> None:
    joined = PADDING.join_rows([request(length), request(length)], NAMES, np.empty)
    assert joined["ids"].shape == (2, length)
    assert joined["pairs"].shape == (2, length, length)


def test_outputs_are_cut_along_all_their_axes_and_are_views() -> None:
    outputs = {"y": np.zeros((2, 5, 8)), "scores": np.zeros((2, 8, 8)), "pooled": np.zeros((2, 8))}
    whole = dict(outputs)
    PADDING.check(outputs, 8)
    PADDING.cut(outputs, 3)
    assert [outputs[name].shape for name in outputs] == [(2, 5, 3), (2, 3, 3), (2, 8)]
    assert outputs["y"].base is whole["y"]


def test_an_output_of_another_length_is_an_error() -> None:
    with pytest.raises(GraphError, match=r"output 'y' is \[2,5,7\] for sequences padded to 8"):
        PADDING.check({"y": np.zeros((2, 5, 7))}, 8)


@pytest.mark.parametrize("length", [0, 9])
def test_outputs_of_what_is_not_padded_may_have_any_length(length: int) -> None:
    outputs = {"y": np.zeros((2, 5, 12))}
    PADDING.check(outputs, length)
    PADDING.cut(outputs, length)
    assert outputs["y"].shape == (2, 5, 12)
