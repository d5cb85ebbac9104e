"""RoiAlign beside onnx.reference, and what that does not look at."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference.ops.op_roi_align import RoiAlign

from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.operators import make_operator
from aioinfer.runtime.operators.images import region_alignment
from aioinfer.runtime.operators.images.region_alignment import MOST_SAMPLES

X = np.random.default_rng(0).normal(size=(2, 3, 9, 7)).astype(np.float32)
REGIONS = np.array(
    [
        [0, 0, 6, 8],
        [1.3, 2.2, 5.1, 7.9],
        [-4, -3, 2, 2],
        [5, 6, 30, 20],
        [3, 3, 3, 3],
        [4, 5, 2, 3],
        [-9, -9, -5, -5],
    ],
    np.float32,
)
BATCHES = np.array([0, 1, 1, 0, 1, 0, 0])


def align(x=X, regions=REGIONS, batches=BATCHES, **attributes):
    node = Node("RoiAlign", [Value(name) for name in "xrb"], [Value("y")], attributes, name="n")
    return make_operator(node, {"": 23})(x, regions, batches)[0]


def expected(mode: str, form: str, height: int, width: int, ratio: int, scale: float):
    made = np.empty(len(REGIONS) * 3 * height * width, np.float32)
    shape = (len(REGIONS), 3, height, width)
    RoiAlign.roi_align_forward(
        shape, X.ravel(), scale, 9, 7, ratio, REGIONS.ravel(), 4, made, mode,
        form == "half_pixel", BATCHES,
    )  # fmt: skip
    return made.reshape(shape)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("form", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2, 3])
@pytest.mark.parametrize("size", [(1, 1), (3, 5)])
@pytest.mark.parametrize("scale", [1.0, 0.6])
def test_regions_in_and_out_of_the_image(mode, form, ratio, size, scale) -> None:
    found = align(
        mode=mode,
        coordinate_transformation_mode=form,
        sampling_ratio=ratio,
        output_height=size[0],
        output_width=size[1],
        spatial_scale=scale,
    )
    assert found.dtype == np.float32
    wanted = expected(mode, form, *size, ratio, scale)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_infinity_counts_where_it_is_a_neighbour_alone() -> None:
    x = np.zeros((1, 1, 8, 8), np.float32)
    x[0, 0, 7, 7] = np.inf
    corner = np.array([[0, 0, 7.5, 7.5]], np.float32)
    found = align(x, corner, np.array([0]), output_height=2, output_width=2, sampling_ratio=2)
    assert np.isfinite(found[0, 0].ravel()[:3]).all()
    assert not np.isfinite(found[0, 0, 1, 1])


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_region_that_is_not_finite_is_zero(number: float) -> None:
    region = np.array([[0, 0, number, 4]], np.float32)
    assert not align(regions=region, batches=np.array([0]), sampling_ratio=2).any()


def test_float16_is_computed_in_float32() -> None:
    found = align(X.astype(np.float16), REGIONS.astype(np.float16), output_height=2)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), align(output_height=2), atol=5e-3)


@pytest.mark.parametrize(("x", "count"), [((2, 3, 0, 7), 2), ((2, 0, 9, 7), 2), ((2, 3, 9, 7), 0)])
def test_nothing_to_look_at_or_for(x, count) -> None:
    found = align(np.ones(x, np.float32), REGIONS[:count], BATCHES[:count])
    assert found.shape == (count, x[1], 1, 1)
    assert not found.any()


@pytest.mark.parametrize(
    ("regions", "batches", "text"),
    [
        (REGIONS[:2], BATCHES[:1], "wanted"),
        (REGIONS[:, :3], BATCHES, "wanted"),
        (np.array([[0, 0, 4, 2.0 * MOST_SAMPLES]], np.float32), np.array([0]), "points"),
    ],
)
def test_what_does_not_fit_is_refused(regions, batches, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        align(regions=regions, batches=batches)


@pytest.mark.parametrize("image", [2, -1])
def test_an_image_that_is_not_there_is_a_wrong_index(image: int) -> None:
    with pytest.raises(IndexError, match=f"images {image} to {image} of 2"):
        align(regions=REGIONS[:1], batches=np.array([image]))


def test_points_of_a_vast_region_are_not_looked_at_one_by_one() -> None:
    side = 20000.0
    region = np.array([[0, 0, side, side]], np.float32)
    with pytest.raises(ValueError, match="values at points of regions"):
        align(regions=region, batches=np.array([0]), mode="max")


@pytest.mark.parametrize(
    ("mode", "side", "count"), [("max", 8191.0, 2), ("avg", float(MOST_SAMPLES), 33)]
)
def test_points_of_all_regions_have_a_bound(mode: str, side: float, count: int) -> None:
    regions = np.tile(np.float32([0, 0, side, side]), (count, 1))
    with pytest.raises(ValueError, match=f"with region {count - 1} .* smaller regions, or fewer"):
        align(X[:, :, :4, :4], regions, np.zeros(count, np.int64), mode=mode)


def test_a_large_result_may_have_more_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_alignment, "MOST_VALUES", 100)
    regions, batches = np.tile(np.float32([0, 0, 8, 8]), (3, 1)), np.zeros(3, np.int64)
    found = align(X[:, :1], regions, batches, mode="max", output_height=8, output_width=8)
    assert found.shape == (3, 1, 8, 8)  # 64 points each, of which 100 are taken, and 192 in all
    with pytest.raises(ValueError, match="with region 2 there are 243 values"):
        align(X[:, :1], regions * 9 / 8, batches, mode="max")


def mean_of_points(image, rows, columns):
    """Take the mean point by point: of four neighbours each, times their weights."""
    with np.errstate(all="ignore"):
        one, two, three, four = region_alignment._weighted(image, rows, columns)
        return (one + two + three + four).mean(axis=(2, 4))


@pytest.mark.parametrize("form", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_means_of_what_is_not_finite_are_those_of_its_points(
    seed, ratio, form, monkeypatch
) -> None:
    """A neighbour of weight 0 counts as well, as it does on CPU."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(2, 3, 9, 7)).astype(np.float32)
    at = chance.random(x.shape) < 0.06
    x[at] = chance.choice([np.nan, np.inf, -np.inf], at.sum())
    corners = (chance.uniform(-3, 12, (20, 4)) * 2).round() / chance.choice([2, 3], (20, 1))
    given = {"x": x, "regions": corners.astype(np.float32), "batches": np.arange(20) % 2}
    settings = {"output_height": 3, "output_width": 2, "coordinate_transformation_mode": form}
    made = align(**given, sampling_ratio=ratio, **settings)
    monkeypatch.setattr(region_alignment, "_mean_of_any", mean_of_points)
    wanted = align(**given, sampling_ratio=ratio, **settings)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_large_region_of_what_is_not_finite_has_a_mean(number) -> None:
    """Its points are not looked at one by one, as there are 2^28 and more."""
    x = np.full((1, 1, 6, 6), number, np.float32)
    made = align(x, np.array([[0, 0, 2e4, 2e4]], np.float32), np.array([0]))
    assert made.shape == (1, 1, 1, 1)
    assert np.isnan(made).all()
