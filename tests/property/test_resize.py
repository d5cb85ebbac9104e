"""Resize on numpy arrays gives what onnx.reference gives, where that is right."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.onnx_writer import node_to_proto
from aioinfer.runtime.operators import as_operator
from aioinfer.runtime.operators.images.resampling import COORDINATES, NEAREST
from aioinfer.runtime.operators.plain_operators import find_plain
from exhaustive import drawn

NAMES = ("x", "roi", "scales", "sizes")
BOUNDS = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-12}
"""Largest error over the largest value."""


def node_of(inputs, attributes):
    given = [
        None if array is None else Value(name) for name, array in zip(NAMES, inputs, strict=False)
    ]
    return Node("Resize", given, [Value("y")], attributes, name="n")


def by_plain(*inputs, **attributes):
    node = node_of(inputs, attributes)
    resize = find_plain(node, {})
    assert resize is not None
    with np.errstate(all="ignore"):
        (made,) = as_operator(resize, attributes)(*inputs)
    return made


def by_onnx(*inputs, **attributes):
    feeds = {name: array for name, array in zip(NAMES, inputs, strict=False) if array is not None}
    (made,) = ReferenceEvaluator(node_to_proto(node_of(inputs, attributes))).run(None, feeds)
    return made


@st.composite
def resizes(draw):
    """Draw inputs and attributes; a result may not be empty, where onnx.reference fails."""
    rank = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank))
    chance = np.random.default_rng(draw(st.integers(0, 2**16)))
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "int32", "uint8"]))
    x = chance.standard_normal(shape) * 50
    x = x.clip(0).astype(dtype) if dtype == "uint8" else x.astype(dtype)
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": draw(st.sampled_from(sorted(COORDINATES))),
    }
    axes = list(range(rank))
    if draw(st.booleans()):
        axes = draw(st.lists(st.sampled_from(axes), min_size=1, unique=True))
        attributes["axes"] = axes
    if mode == "nearest":
        attributes["nearest_mode"] = draw(st.sampled_from(sorted(NEAREST)))
    else:
        attributes["antialias"] = draw(st.integers(0, 1))
        if mode == "cubic" or attributes["antialias"]:  # onnx.reference fails for some without
            attributes["exclude_outside"] = draw(st.integers(0, 1))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = draw(st.sampled_from([-0.75, -0.5]))
    roi = None
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        attributes["extrapolation_value"] = 2.5
        # Sums and products of eighths are exact in float32, in which onnx.reference places a roi.
        starts, ends = (chance.integers(low, low + 6, len(axes)) / 8 for low in (-1, 5))
        roi = np.concatenate([starts, ends]).astype(np.float32)
    if draw(st.booleans()):
        scales = chance.choice([0.5, 0.75, 1, 1.25, 2, 2.5], len(axes)).astype(np.float32)
        assume(all(int(scale * shape[axis]) for scale, axis in zip(scales, axes, strict=True)))
        return (x, roi, scales, None), attributes
    policies = ["stretch", "not_larger", "not_smaller"]
    attributes["keep_aspect_ratio_policy"] = draw(st.sampled_from(policies))
    sizes = chance.integers(1, 8, len(axes))
    factors = [size / shape[axis] for size, axis in zip(sizes, axes, strict=True)]
    assume(all(int(min(factors) * shape[axis] + 0.5) for axis in axes))
    return (x, roi, None, sizes), attributes


@pytest.mark.exhaustive
@settings(max_examples=drawn(250), derandomize=True, database=None)
@given(resizes())
def test_any_resize(drawn) -> None:
    inputs, attributes = drawn
    made, expected = by_plain(*inputs, **attributes), by_onnx(*inputs, **attributes)
    assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
    if made.dtype.kind != "f":
        error = np.abs(made.astype(np.int64) - expected.astype(np.int64)).max(initial=0)
        assert error <= (attributes["mode"] != "nearest")  # a half may be rounded to either side
        return
    largest = max(1.0, float(np.abs(expected).max()))
    bound = BOUNDS[made.dtype.name] * largest
    np.testing.assert_allclose(made, expected, rtol=0, atol=bound)


def test_volumes_are_interpolated_axis_by_axis() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 3, 4, 3)).astype(np.float32)
    scales = np.array([1, 1, 2, 1.5, 0.5], np.float32)
    for mode in ("linear", "cubic"):
        made, expected = (by(x, None, scales, mode=mode) for by in (by_plain, by_onnx))
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    large = by_plain(
        np.ones((1, 2, 24, 24, 24), np.float32), None, np.array([1, 1, 2, 2, 2], np.float32),
        mode="cubic",
    )  # fmt: skip
    np.testing.assert_allclose(large, np.ones((1, 2, 48, 48, 48)), rtol=1e-6)


def test_lengths_are_rounded_down_of_products_in_float32() -> None:
    scales = np.array([0.7], np.float32)  # 6.9999999 times 10 in float64, 7 in float32
    assert by_plain(np.arange(10.0), None, scales).shape == (7,)


def test_what_is_repeated_stays_what_it_is() -> None:
    twice = np.array([2], np.float32)
    large = np.array([2**62 + 1, -(2**53) - 1])
    assert by_plain(large, None, twice).tolist() == np.repeat(large, 2).tolist()
    assert by_plain(np.array(["a", "b"], object), None, twice).tolist() == ["a", "a", "b", "b"]
    truth = by_plain(np.array([True, False]), None, twice)
    assert (truth.dtype, truth.tolist()) == (np.bool_, [True, True, False, False])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_empty_results(mode) -> None:
    x = np.zeros((2, 0, 3), np.float32)
    assert by_plain(x, None, np.array([2, 2, 2], np.float32), mode=mode).shape == (4, 0, 6)
    third = np.array([1, 1, 0.25], np.float32)
    assert by_plain(np.ones((2, 1, 3)), None, third, mode=mode).shape == (2, 1, 0)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ((None, None, None), {}, "0 scales and 0 sizes are given for 1 axes"),
        ((None, np.ones(1, np.float32), np.ones(1, np.int64)), {}, "1 scales and 1 sizes"),
        ((None, np.ones(2, np.float32)), {}, "2 scales and 0 sizes"),
        ((None, np.full(1, np.nan, np.float32)), {}, "have to be above zero and finite"),
        (
            (None, np.ones(1, np.float32)),
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "a roi of 2 numbers",
        ),
    ],
)
def test_what_does_not_fit_is_refused(inputs, attributes, message) -> None:
    with pytest.raises((ValueError, ModelError), match=message):
        by_plain(np.arange(3.0), *inputs, **attributes)


def test_a_roi_is_read_only_where_something_is_cropped() -> None:
    empty, twice = np.zeros(0, np.float32), np.array([2], np.float32)
    assert by_plain(np.arange(2), empty, twice).tolist() == [0, 0, 1, 1]


def test_unknown_modes_are_left_to_onnx() -> None:
    inputs = (np.zeros(2), None, np.ones(1))
    assert find_plain(node_of(inputs, {"mode": "lanczos"}), {}) is None
