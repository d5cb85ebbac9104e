"""Col2Im and MaxUnpool, beside onnx.reference and onnxruntime."""

import numpy as np
import pytest

from unit.runtime.operators.beside_peers import by_onnx, by_onnxruntime, by_us


def columns_of(image, block, pads, strides, dilations, batch=2, channels=3, dtype=np.float32):
    rank = len(image)
    windows = [
        (length + pads[axis] + pads[axis + rank] - dilations[axis] * (block[axis] - 1) - 1)
        // strides[axis]
        + 1
        for axis, length in enumerate(image)
    ]
    shape = (batch, channels * int(np.prod(block)), int(np.prod(windows)))
    return np.random.default_rng(1).integers(-99, 99, shape).astype(dtype)


CASES = [
    ([5, 6], [2, 3], [0, 0, 0, 0], [1, 1], [1, 1]),
    ([5, 6], [3, 2], [1, 0, 2, 1], [2, 3], [1, 2]),
    ([7], [3], [1, 1], [1], [2]),
    ([4, 3, 5], [2, 2, 3], [1, 0, 1, 0, 1, 1], [2, 1, 1], [1, 2, 1]),
    ([6, 6], [2, 2], [0, 0, 0, 0], [4, 4], [1, 1]),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize(("image", "block", "pads", "strides", "dilations"), CASES)
def test_windows_are_added_up(image, block, pads, strides, dilations, dtype) -> None:
    columns = columns_of(image, block, pads, strides, dilations, dtype=dtype)
    inputs = columns, np.array(image), np.array(block)
    settings = {"pads": pads, "strides": strides, "dilations": dilations}
    made = by_us("Col2Im", *inputs, **settings)
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, by_onnx("Col2Im", *inputs, **settings), strict=True)
    # onnxruntime mixes channels up for some images that have other than two axes.
    if dtype == np.float32 and len(image) == 2:
        wanted = by_onnxruntime("Col2Im", *inputs, **settings)
        np.testing.assert_array_equal(made, wanted, strict=True)


def test_windows_over_a_part_of_an_image() -> None:
    inputs = columns_of([6, 4], [2, 2], [-1, 0, -2, 0], [1, 1], [1, 1]), np.array([6, 4])
    settings = {"pads": [-1, 0, -2, 0]}
    made = by_us("Col2Im", *inputs, np.array([2, 2]), **settings)
    np.testing.assert_array_equal(made, by_onnx("Col2Im", *inputs, np.array([2, 2]), **settings))


def test_no_images_are_put_together() -> None:
    columns = np.zeros((0, 4, 4), np.float32)
    assert by_us("Col2Im", columns, np.array([3, 3]), np.array([2, 2])).shape == (0, 1, 3, 3)


@pytest.mark.parametrize(
    ("shape", "image", "settings"),
    [
        ((1, 5, 4), [3, 3], {}),
        ((1, 4, 5), [3, 3], {}),
        ((1, 4), [3, 3], {}),
        ((1, 4, 0), [1, 1], {}),
        ((1, 4, 4), [3, 3, 3], {}),
        ((1, 4, 4), [3, 3], {"strides": [0, 1]}),
        ((1, 4, 4), [3, 3], {"pads": [0, 0]}),
    ],
)
def test_windows_that_do_not_fit_are_refused(shape, image, settings) -> None:
    with pytest.raises(ValueError, match=r"wanted|fit|or more"):
        by_us("Col2Im", np.zeros(shape, np.float32), np.array(image), np.array([2, 2]), **settings)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("lengths", [(4,), (3, 2), (2, 3, 2)])
def test_elements_go_back_to_where_they_were(lengths, dtype) -> None:
    rank = len(lengths)
    chance = np.random.default_rng(rank)
    x = chance.standard_normal((2, 3, *lengths)).astype(dtype)
    settings = {"kernel_shape": [2] * rank, "strides": [2] * rank}
    room = 6 * int(np.prod([2 * length for length in lengths]))
    places = chance.permutation(room)[: x.size].reshape(x.shape)
    made = by_us("MaxUnpool", x, places, **settings)
    np.testing.assert_array_equal(made, by_onnx("MaxUnpool", x, places, **settings), strict=True)
    if dtype == np.float32:
        wanted = by_onnxruntime("MaxUnpool", x, places, **settings)
        np.testing.assert_array_equal(made, wanted, strict=True)


def test_of_two_elements_for_one_place_the_later_one_stays() -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 4)
    places = np.array([[[2, 2, 0, 2]]])
    settings = {"kernel_shape": [2], "pads": [1, 0], "strides": [1]}
    wanted = [[[3, 0, 4, 0]]]
    assert by_us("MaxUnpool", x, places, **settings).tolist() == wanted
    assert by_onnx("MaxUnpool", x, places, **settings).tolist() == wanted


@pytest.mark.parametrize("place", [-1, 4])
def test_a_place_outside_is_an_error(place: int) -> None:
    x = np.ones((1, 1, 2), np.float32)
    places = np.array([[[0, place]]])
    with pytest.raises(IndexError):
        by_us("MaxUnpool", x, places, kernel_shape=[2], strides=[2])


def test_a_pooled_image_is_the_corner_of_a_larger_one() -> None:
    x = np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)
    inputs = x, np.array([[[[5, 7], [13, 15]]]]), np.array([1, 1, 5, 5])
    settings = {"kernel_shape": [2, 2], "strides": [2, 2]}
    wanted = by_onnx("MaxUnpool", *inputs, **settings)
    np.testing.assert_array_equal(by_us("MaxUnpool", *inputs, **settings), wanted)


def test_places_that_do_not_fit_are_refused() -> None:
    x = np.zeros((1, 1, 2), np.float32)
    with pytest.raises(IndexError):
        by_us("MaxUnpool", x, np.array([[[0, 4]]]), kernel_shape=[2], strides=[2])
    for places, settings in [
        (np.array([[[0]]]), {}),
        (np.array([[[0, 1]]]), {"pads": [1]}),
        (np.array([[[0, 1]]]), {"strides": [1, 1]}),
    ]:
        with pytest.raises(ValueError, match="kernel"):
            by_us("MaxUnpool", x, places, kernel_shape=[2], **settings)
