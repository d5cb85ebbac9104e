"""The sample of a test's cases that ``make test`` runs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import exhaustive
from exhaustive import LEAST, choose_cases, drawn


def chosen_of(**values: list[Any]) -> list[tuple[Any, ...]]:
    """Return what is chosen of all combinations."""
    cases = [dict(zip(values, case, strict=True)) for case in itertools.product(*values.values())]
    return [tuple(cases[index].values()) for index in sorted(choose_cases(cases))]


@pytest.mark.parametrize("values", [["Add", "Mul", "Sub", "Div"], [int, str, bytes, dict]])
def test_every_name_comes_up(values: list[Any]) -> None:
    assert chosen_of(value=values) == [(value,) for value in values]


def test_names_of_several_arguments_share_cases() -> None:
    found = chosen_of(operator=["Add", "Mul", "Sub"], dtype=[np.dtype("f4"), np.dtype("i8")])
    assert len(found) == 3
    assert {operator for operator, _ in found} == {"Add", "Mul", "Sub"}
    assert {dtype for _, dtype in found} == {np.dtype("f4"), np.dtype("i8")}


def test_of_numbers_alone_a_few_are_enough() -> None:
    assert chosen_of(seed=list(range(150))) == [(seed,) for seed in range(LEAST)]
    assert chosen_of(seed=[7]) == [(7,)]


def test_numbers_beside_names_fill_up_what_is_least() -> None:
    found = chosen_of(mode=["linear", "cubic"], size=[1, 2, 3, 4])
    assert len(found) == LEAST
    assert {mode for mode, _ in found} == {"linear", "cubic"}


@pytest.mark.parametrize(
    ("is_sampling", "counts"), [(True, [1, 1, 2, 25]), (False, [1, 4, 5, 100])]
)
def test_a_quarter_is_drawn_in_a_sample_and_never_nothing(
    monkeypatch: pytest.MonkeyPatch, is_sampling: bool, counts: list[int]
) -> None:
    monkeypatch.setattr(exhaustive, "_is_sampling", False)
    exhaustive.sample_draws(is_sampling=is_sampling)
    assert [drawn(count) for count in (1, 4, 5, 100)] == counts
