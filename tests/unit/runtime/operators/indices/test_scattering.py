"""Scattering refuses places that are not there, also where all of them repeat."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.operators.indices.scattering import scatter_elements


@pytest.mark.parametrize(
    ("shape", "places", "axis"),
    [((2, 1), (2, 3), 0), ((2, 0), (1, 1), 0), ((2, 2), (2, 2), 5), ((), (), 0)],
)
def test_repeated_places_outside_are_refused(
    shape: tuple[int, ...], places: tuple[int, ...], axis: int
) -> None:
    indices, updates = np.zeros(places, np.int64), np.ones((*places[:1], *[1] * len(places[1:])))
    with pytest.raises(IndexError):
        scatter_elements(np.zeros(shape), indices, updates, axis=axis)
