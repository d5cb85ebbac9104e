"""GridSample, beside onnx.reference and onnxruntime."""

import numpy as np
import pytest

from unit.runtime.operators.beside_peers import by_onnx, by_onnxruntime, by_us

MODES = ["linear", "nearest", "cubic"]
PADDINGS = ["zeros", "border", "reflection"]


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [(5,), (4, 3), (3, 2, 4)])
def test_points_inside_and_outside(lengths, mode, padding_mode, align_corners) -> None:
    chance = np.random.default_rng(len(lengths))
    x = chance.standard_normal((2, 3, *lengths)).astype(np.float32)
    grid = chance.uniform(-2, 2, (2, *[2, 3, 2][: len(lengths)], len(lengths))).astype(np.float32)
    settings = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    made = by_us("GridSample", x, grid, **settings)
    assert made.dtype == np.float32
    # onnx.reference moves a point to the border, and not the neighbours.
    if (mode, padding_mode) != ("cubic", "border"):
        wanted = by_onnx("GridSample", x, grid, **settings)
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    if len(lengths) == 2 or (len(lengths) == 3 and mode != "cubic"):
        wanted = by_onnxruntime("GridSample", x, grid, opset=20, **settings)
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_half_numbers_are_mixed_in_single_precision(mode) -> None:
    chance = np.random.default_rng(4)
    x = chance.standard_normal((1, 2, 6, 7)).astype(np.float16)
    grid = chance.uniform(-1, 1, (1, 4, 4, 2)).astype(np.float16)
    made = by_us("GridSample", x, grid, mode=mode)
    wide = by_us("GridSample", x.astype(np.float32), grid.astype(np.float32), mode=mode)
    assert made.dtype == np.float16
    np.testing.assert_array_equal(made, wide.astype(np.float16))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_, np.float64])
def test_the_nearest_of_any_type(dtype) -> None:
    x = (np.arange(12).reshape(1, 1, 3, 4) % 5).astype(dtype)
    grid = np.random.default_rng(5).uniform(-1.5, 1.5, (1, 5, 5, 2)).astype(np.float32)
    made = by_us("GridSample", x, grid, mode="nearest")
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, by_onnx("GridSample", x, grid, mode="nearest"))


def test_texts_are_sampled_and_nothing_is_an_empty_one() -> None:
    x = np.array([[[["a", "b"]]]], object)
    grid = np.array([[[[-0.5, 0], [0.5, 0], [3, 0]]]], np.float32)
    assert by_us("GridSample", x, grid, mode="nearest").tolist() == [[[["a", "b", ""]]]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding_mode", PADDINGS)
def test_points_that_are_far_away_or_no_numbers(padding_mode, mode) -> None:
    x = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 2, 3)
    points = [[np.nan, 0], [1e30, 0], [-np.inf, 0], [0, -1e30]]
    made = by_us(
        "GridSample", x, np.array([[points]], np.float32), mode=mode, padding_mode=padding_mode
    )[0, 0, 0]
    assert np.isfinite(made).all()
    if padding_mode == "zeros":
        np.testing.assert_array_equal(made[1:], 0)
    elif padding_mode == "border":
        middle = 3 if mode == "nearest" else 4.5
        np.testing.assert_allclose(made[1:3], [middle, middle - 2], atol=2)
    else:
        assert np.isfinite(made[[1, 3]]).all()


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("lengths", [(3, 4), (2, 3, 5)])
def test_places_that_are_no_numbers_are_those_of_onnxruntime(
    lengths, padding_mode, mode, align_corners
) -> None:
    """NaN anywhere, and infinity where it is mirrored: elsewhere onnxruntime takes a wrong edge."""
    if mode == "cubic" and len(lengths) == 3:
        pytest.skip("onnxruntime has no cubic volumes")
    chance = np.random.default_rng(8)
    x = chance.standard_normal((1, 2, *lengths)).astype(np.float32)
    kinds = [np.nan, *[np.inf, -np.inf] * (padding_mode == "reflection")]
    grid = chance.uniform(-1.5, 1.5, (1, *lengths, len(lengths))).astype(np.float32)
    grid[chance.random(grid.shape) < 0.4] = kinds[0]
    grid[chance.random(grid.shape) < 0.3] = kinds[-1]
    settings = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    made = by_us("GridSample", x, grid, **settings)
    wanted = by_onnxruntime("GridSample", x, grid, opset=20, **settings)
    assert np.isfinite(made).all()
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", [1e6, 1e10, 1e20, np.inf])
def test_whatever_is_far_outside_is_outside(mode, place) -> None:
    """onnxruntime has the first edge for places that no integer of 64 bits holds."""
    x = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 2, 3)
    grid = np.array([[[[place, 0], [-place, 0], [7, 0], [-7, 0]]]], np.float32)
    for padding_mode in ("zeros", "border"):
        made = by_us("GridSample", x, grid, mode=mode, padding_mode=padding_mode)[0, 0, 0]
        np.testing.assert_array_equal(made[:2], made[2:])


def test_an_axis_of_one_element_is_mirrored_onto_itself() -> None:
    x = np.full((1, 1, 1, 1), 3, np.float32)
    grid = np.random.default_rng(6).uniform(-4, 4, (1, 3, 3, 2)).astype(np.float32)
    for mode in MODES:
        made = by_us("GridSample", x, grid, mode=mode, padding_mode="reflection", align_corners=1)
        np.testing.assert_allclose(made, 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("x_shape", "grid_shape", "made_shape"),
    [
        ((0, 2, 3, 3), (0, 4, 5, 2), (0, 2, 4, 5)),
        ((1, 0, 3, 3), (1, 4, 5, 2), (1, 0, 4, 5)),
        ((1, 2, 3, 3), (1, 0, 5, 2), (1, 2, 0, 5)),
        ((1, 2, 0, 3), (1, 4, 5, 2), (1, 2, 4, 5)),
    ],
)
def test_nothing_is_sampled(x_shape, grid_shape, made_shape) -> None:
    made = by_us("GridSample", np.ones(x_shape, np.float32), np.zeros(grid_shape, np.float32))
    assert made.shape == made_shape
    assert not made.any()


@pytest.mark.parametrize(
    ("x_shape", "grid_shape", "settings", "message"),
    [
        ((1, 1, 3, 3), (1, 4, 5, 3), {}, "wanted"),
        ((2, 1, 3, 3), (1, 4, 5, 2), {}, "wanted"),
        ((1, 1, 3), (1, 4, 5, 1), {}, "wanted"),
        ((1, 1, 3, 3), (1, 4, 5, 2), {"mode": "quartic"}, "quartic"),
        ((1, 1, 3, 3), (1, 4, 5, 2), {"padding_mode": "none"}, "none"),
    ],
)
def test_what_does_not_fit_is_refused(x_shape, grid_shape, settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        by_us("GridSample", np.ones(x_shape, np.float32), np.ones(grid_shape, "f"), **settings)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("lengths", [(3, 4), (1, 5), (2, 1), (2, 3, 4), (1, 2, 1)])
def test_grids_of_affine_maps(lengths, align_corners) -> None:
    axes = len(lengths)
    theta = np.random.default_rng(axes).standard_normal((2, axes, axes + 1)).astype(np.float32)
    inputs = theta, np.array([2, 3, *lengths])
    made = by_us("AffineGrid", *inputs, align_corners=align_corners)
    wanted = by_onnxruntime("AffineGrid", *inputs, opset=20, align_corners=align_corners)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)


def test_a_map_of_other_axes_is_refused() -> None:
    with pytest.raises(Exception, match=r"theta is \(1, 2, 3\)"):
        by_us("AffineGrid", np.ones((1, 2, 3), np.float32), np.array([1, 1, 2, 2, 2]))
