"""Tables of resized axes, as one would write them down by hand."""

import numpy as np
import pytest

from aioinfer.runtime.operators.images.resampling import (
    Resampling,
    linear_pairs,
    nearest_indices,
    weighted_indices,
)


def axis(length: int, count: int, coordinates: str = "half_pixel", **parts: float) -> Resampling:
    return Resampling(length, count, np.float32(count / length), coordinates, **parts)


@pytest.mark.parametrize(
    ("coordinates", "places"),
    [
        ("half_pixel", [-0.25, 0.25, 0.75, 1.25]),
        ("half_pixel_symmetric", [-0.25, 0.25, 0.75, 1.25]),
        ("pytorch_half_pixel", [-0.25, 0.25, 0.75, 1.25]),
        ("tf_half_pixel_for_nn", [0.25, 0.75, 1.25, 1.75]),
        ("asymmetric", [0, 0.5, 1, 1.5]),
        ("align_corners", [0, 1 / 3, 2 / 3, 1]),
        ("tf_crop_and_resize", [0, 1 / 3, 2 / 3, 1]),
    ],
)
def test_places(coordinates: str, places: list[float]) -> None:
    np.testing.assert_allclose(axis(2, 4, coordinates).places(), places, rtol=1e-6)


@pytest.mark.parametrize("coordinates", ["align_corners", "pytorch_half_pixel"])
def test_a_single_element_is_the_first(coordinates: str) -> None:
    one = Resampling(4, 1, np.float32(0.25), coordinates)
    assert one.places().tolist() == [0]
    assert nearest_indices(one, "round_prefer_floor").tolist() == [0]


@pytest.mark.parametrize(
    ("rounding", "indices"),
    [
        ("floor", [0, 0, 1, 1]),
        ("ceil", [0, 1, 1, 1]),
        ("round_prefer_floor", [0, 0, 1, 1]),
        ("round_prefer_ceil", [0, 1, 1, 1]),
    ],
)
def test_nearest_neighbours_stay_inside(rounding: str, indices: list[int]) -> None:
    found = nearest_indices(axis(2, 4, "asymmetric"), rounding)
    assert found.dtype == np.int32
    assert found.tolist() == indices


def test_linear_weights() -> None:
    weighted = weighted_indices(axis(2, 4, "asymmetric"), "linear")
    assert weighted.indices.tolist() == [[0, 0], [0, 1], [0, 1], [1, 1]]
    assert weighted.weights.tolist() == [[0, 1], [0.5, 0.5], [0, 1], [0.5, 0.5]]


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("is_antialiased", [False, True])
@pytest.mark.parametrize("excludes_outside", [False, True])
@pytest.mark.parametrize("lengths", [(7, 3), (3, 7), (5, 5), (9, 1)])
def test_weights_add_up_to_one(
    mode: str, is_antialiased: bool, excludes_outside: bool, lengths: tuple[int, int]
) -> None:
    weighted = weighted_indices(
        axis(*lengths), mode, is_antialiased=is_antialiased, excludes_outside=excludes_outside
    )
    np.testing.assert_allclose(weighted.weights.sum(axis=1), 1, rtol=1e-6)
    assert weighted.indices.min() >= 0
    assert weighted.indices.max() < lengths[0]


def test_antialiasing_reaches_as_far_as_the_scale() -> None:
    assert weighted_indices(axis(8, 2), "linear", is_antialiased=True).indices.shape == (2, 8)
    assert weighted_indices(axis(8, 2), "linear").indices.shape == (2, 2)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_an_axis_that_stays_as_it_is_needs_nothing(mode: str) -> None:
    assert weighted_indices(axis(4, 4), mode).is_identity(4)
    assert not weighted_indices(axis(4, 2), mode).is_identity(4)
    assert not weighted_indices(Resampling(4, 2, np.float32(1.0)), mode).is_identity(4)


def test_what_is_cropped_from_outside_is_the_value_given() -> None:
    outer = axis(3, 5, "tf_crop_and_resize", start=-0.5, end=1.5)
    weighted = weighted_indices(outer, "linear", outside=7.0)
    assert outer.outside().tolist() == [True, False, False, False, True]
    assert weighted.offsets.tolist() == [7, 0, 0, 0, 7]
    assert weighted.weights.sum(axis=1).tolist() == [0, 1, 1, 1, 0]


def test_an_axis_of_scale_one_is_taken_whole() -> None:
    own = axis(3, 3, "tf_crop_and_resize", start=-0.5, end=1.5)
    assert own.places().tolist() == [0, 1, 2]
    assert weighted_indices(own, "linear", outside=7.0).is_identity(3)


def test_corners_are_those_of_the_whole_length() -> None:
    shrunk = Resampling(4, 3, np.float32(0.8), "align_corners")
    assert shrunk.places().tolist() == [0, 1.5, 3]


def test_places_near_a_half_lie_between_two_elements() -> None:
    near = Resampling(7, 4, np.float32(4) / np.float32(7), "asymmetric")
    assert near.places()[2] < 3.5
    assert nearest_indices(near, "round_prefer_ceil").tolist() == [0, 2, 4, 5]
    assert nearest_indices(near, "round_prefer_floor").tolist() == [0, 2, 3, 5]


def test_pairs_of_10_bits_are_whole() -> None:
    pairs = linear_pairs(axis(4, 6), in_10_bits=True)
    assert pairs.indices.tolist() == [[0, 1], [0, 1], [1, 2], [1, 2], [2, 3], [3, 3]]
    assert pairs.weights.tolist() == [
        *([1024, 0], [512, 512], [854, 170]),
        *([171, 853], [512, 512], [512, 512]),
    ]
