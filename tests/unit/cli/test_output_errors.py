"""How far outputs are from those of another precision."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.cli.output_errors import OutputError, output_errors


def test_the_largest_difference_is_told_and_set_against_the_largest_number() -> None:
    expected = {"y": np.array([4.0, -2.0, 0.0], np.float32), "k": np.array([1, 2])}
    made = {"y": np.array([4.0, -2.5, 0.1], np.float32), "k": np.array([1, 2])}
    first, second = output_errors(made, expected)
    assert (first.output, first.absolute, first.relative) == ("y", 0.5, 0.125)
    assert second == OutputError("k", 0.0, 0.0)


@pytest.mark.parametrize(
    ("made", "expected", "absolute"),
    [
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.inf, 1.0], [np.inf, 1.5], 0.5),
        ([np.inf, 1.0], [2.0, 1.0], np.inf),
        ([np.nan, 1.0], [2.0, 1.0], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
    ],
)
def test_what_is_not_finite_is_equal_or_infinitely_far(
    made: list[float], expected: list[float], absolute: float
) -> None:
    (error,) = output_errors({"y": np.array(made)}, {"y": np.array(expected)})
    assert error.absolute == absolute


def test_what_is_no_number_is_left_out() -> None:
    text = np.array(["a"], object)
    assert output_errors({"t": text, "s": [text]}, {"t": text, "s": [text]}) == []
    assert output_errors({}, {"y": np.ones(2)}) == []
    assert output_errors({"y": np.ones(0)}, {"y": np.ones(0)}) == []
