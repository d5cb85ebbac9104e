"""Places that are not there are refused, also where all of them repeat, and others found."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.operators.indices.scattering import (
    gather_nd,
    scatter_elements,
    scatter_nd,
)


@pytest.mark.parametrize(
    ("shape", "places", "axis"),
    [((2, 1), (2, 3), 0), ((2, 0), (1, 1), 0), ((2, 2), (2, 2), 5), ((), (), 0)],
)
def test_repeated_places_outside_are_refused(
    shape: tuple[int, ...], places: tuple[int, ...], axis: int
) -> None:
    indices, updates = np.zeros(places, np.int64), np.ones(places)
    with pytest.raises(IndexError):
        scatter_elements(np.zeros(shape), indices, updates, axis=axis)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("shape", [(), (7,), (0,), (2, 4)])
def test_what_lies_at_a_place_is_taken(shape: tuple[int, ...], depth: int, dtype: type) -> None:
    chance = np.random.default_rng(depth)
    x = chance.integers(0, 99, (3, 4, 5)).astype(dtype)
    lengths = np.array(x.shape[:depth])
    places = chance.integers(-lengths, lengths, (*shape, depth))
    made = gather_nd(x, places)
    assert (made.shape, made.dtype) == ((*shape, *x.shape[depth:]), x.dtype)
    for at in np.ndindex(shape):
        np.testing.assert_array_equal(made[at], x[tuple(places[at])])
    turned = np.asfortranarray(places)
    np.testing.assert_array_equal(gather_nd(np.asfortranarray(x), turned), made)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("place", [3, -4, 2**40])
def test_what_lies_outside_is_not_taken(place: int, depth: int) -> None:
    places = np.zeros((6, depth), np.int64)
    places[4, depth - 1] = place
    with pytest.raises(IndexError):
        gather_nd(np.zeros((3, 3, 2), np.float32), places)


def test_texts_are_taken_as_they_are() -> None:
    words = np.array(["hat", "coat", "shoe"], object)
    made = gather_nd(words, np.array([[2], [-3]]))
    assert (made.dtype, made.tolist()) == (np.dtype(object), ["shoe", "hat"])


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("shape", [(1, 3), (3,), (), (2, 1), (4, 3), (1, 2, 3)])
def test_updates_are_not_repeated(shape: tuple[int, ...], reduction: str) -> None:
    x, indices, updates = np.zeros((4, 3)), np.array([[0, 1, 2], [3, 2, 1]]), np.ones(shape)
    with pytest.raises(ValueError, match=r"\[2, 3\] is wanted"):
        scatter_elements(x, indices, updates, reduction=reduction)
    with pytest.raises(ValueError, match=r"\[2, 3\] is wanted"):
        scatter_nd(x, indices[:, :1], updates, reduction=reduction)


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_repeated_indices_take_no_repeated_updates(reduction: str) -> None:
    indices = np.broadcast_to(np.array([[0], [1]]), (2, 3))
    with pytest.raises(ValueError, match=r"\[2, 3\] is wanted"):
        scatter_elements(np.zeros((4, 3)), indices, np.ones((2, 1)), reduction=reduction)
