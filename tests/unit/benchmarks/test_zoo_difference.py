"""Answers differ infinitely where one has a number that is not finite and the other has not."""

from __future__ import annotations

import numpy as np
import pytest
from programs import load_program

pytest.importorskip("onnxruntime")
zoo = load_program("zoo")
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("found", "wanted", "distance"),
    [
        ([NAN, 1.0], [1.0, 1.0], INF),
        ([1.0, 1.0], [NAN, 1.0], INF),
        ([INF, 1.0], [-INF, 1.0], INF),
        ([NAN, INF, 1.0], [NAN, INF, 2.0], 0.5),
    ],
)
def test_numbers_that_are_not_finite_are_compared(
    found: list[float], wanted: list[float], distance: float
) -> None:
    assert zoo.difference([np.array(found)], [np.array(wanted)]) == distance
