"""Concat in one launch, for every width of words, against REFERENCE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.backends.cuda.kernels.concatenation import widest_word
from unit.backends.comparing import assert_same_on, model_of, operator
from unit.backends.cuda.kernels.plans import labels_of, plan_of


def joined(
    lengths: list[int], dtype: str = "float32", axis: int = 1, shape: tuple[int, ...] = (3, 0, 5)
) -> tuple[Any, dict[str, Any]]:
    """Join inputs of a shape, but for these lengths along an axis."""
    chance, inputs = np.random.default_rng(1), {}
    for number, length in enumerate(lengths):
        own = [length if place == axis else size for place, size in enumerate(shape)]
        inputs[f"x{number}"] = chance.integers(0, 2, own).astype(dtype)
    return model_of([operator("Concat", *inputs, axis=axis)], inputs), inputs


@pytest.mark.parametrize(
    ("row_bytes", "item_bytes", "word_bytes"),
    [([8, 16], 1, 8), ([8, 12], 4, 4), ([6, 8], 2, 2), ([8, 7], 1, 1), ([24], 8, 8)],
)
def test_a_word_divides_all_rows(row_bytes: list[int], item_bytes: int, word_bytes: int) -> None:
    assert widest_word(row_bytes, item_bytes) == word_bytes


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "int64"])
@pytest.mark.parametrize("lengths", [[1, 2, 4], [8, 16], [0, 3, 0, 1], [2] * 20])
def test_parts_lie_behind_each_other(stand_in_core: Core, lengths: list[int], dtype: str) -> None:
    model, inputs = joined(lengths, dtype)
    assert_same_on("STANDIN", stand_in_core, model, inputs)


@pytest.mark.parametrize("axis", [0, 2])
def test_any_axis(stand_in_core: Core, axis: int) -> None:
    model, inputs = joined([2, 3], axis=axis, shape=(4, 3, 2))
    assert_same_on("STANDIN", stand_in_core, model, inputs)


@pytest.mark.parametrize(
    ("lengths", "labels"),
    [([1, 2, 3], ["concat"]), ([0, 3], []), ([1] * 64, ["concat"]), ([1] * 65, ["copy"] * 65)],
)
def test_it_is_one_launch_unless_there_are_very_many_parts(
    lengths: list[int], labels: list[str]
) -> None:
    model, inputs = joined(lengths)
    assert labels_of(plan_of(model, inputs)) == labels
