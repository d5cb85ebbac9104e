"""Resize gives what onnxruntime gives, on REFERENCE and on CPU."""

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from aioinfer.errors import ModelError
from aioinfer.runtime.graph import Node, Value
from aioinfer.runtime.onnx_writer import node_to_proto
from aioinfer.runtime.operators import as_operator
from aioinfer.runtime.operators.images.resampling import NEAREST
from aioinfer.runtime.operators.plain_operators import find_plain
from exhaustive import drawn

NAMES = ("x", "roi", "scales", "sizes")
BOUNDS = {"float16": 2e-3, "float32": 1e-5}
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


def model_of(opset, inputs, attributes):
    """Make a model of one Resize, whose input x is its only one."""
    x, *lists = inputs
    if opset < 13:  # which names the first two always
        lists[:2] = [np.zeros(0, np.float32) if given is None else given for given in lists[:2]]
    constants = [
        numpy_helper.from_array(given, name)
        for name, given in zip(NAMES[1:], lists, strict=True)
        if given is not None
    ]
    names = {tensor.name for tensor in constants}
    node = helper.make_node(
        "Resize", ["x", *(name if name in names else "" for name in NAMES[1:])], ["y"], **attributes
    )
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", dtype, x.shape)],
        [helper.make_tensor_value_info("y", dtype, None)],
        constants,
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def by_onnxruntime(model, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


COORDINATES_SINCE = {
    **dict.fromkeys(("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"), 11),
    "tf_crop_and_resize": 11,
    "half_pixel_symmetric": 19,
}


@st.composite
def resizes(draw):
    """Draw an opset, inputs and attributes that onnxruntime takes."""
    opset = draw(st.sampled_from([11, 13, 18, 19]))
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    rank = draw(
        st.sampled_from({"nearest": [1, 2, 3, 4, 5], "cubic": [2, 4]}.get(mode, [2, 3, 4, 5]))
    )
    shape = draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank))
    known = [name for name, since in COORDINATES_SINCE.items() if since <= opset]
    coordinates = draw(st.sampled_from([*known, *["tf_half_pixel_for_nn"] * (opset < 13)]))
    is_cropping = coordinates == "tf_crop_and_resize"
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = draw(st.sampled_from(sorted(NEAREST)))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = draw(st.sampled_from([-0.75, -0.5]))
        attributes["exclude_outside"] = draw(st.integers(0, 1))
    if opset >= 18 and mode != "nearest" and draw(st.booleans()):
        attributes |= {"antialias": 1, "exclude_outside": draw(st.integers(0, 1))}
    is_filtered = "antialias" in attributes
    changed = list(range(rank if mode == "nearest" or rank < 4 else 0)) or list(range(2, rank))
    if mode == "linear" and rank == 4 and not (is_filtered and is_cropping) and draw(st.booleans()):
        changed = [1, 2]  # of channels last, where onnxruntime misplaces what is outside
    axes = list(range(rank))
    if opset >= 18 and draw(st.booleans()):
        attributes["axes"] = axes = draw(st.permutations(changed))
    chance = np.random.default_rng(draw(st.integers(0, 2**16)))
    numbers = ["float32"] if mode == "cubic" else ["float32", "float16", "uint8", "int32"]
    # Of int8 onnxruntime keeps nothing below zero that it has filtered.
    dtype = draw(st.sampled_from([*numbers, *["int8"] * (mode != "cubic" and not is_filtered)]))
    x = (chance.standard_normal(shape) * 60).clip(-128, 127)
    x = (x + 128 * (dtype == "uint8")).astype(dtype)
    roi = None
    if is_cropping:
        attributes["extrapolation_value"] = 2.5
        if opset < 13 or draw(st.booleans()):
            starts, ends = (chance.uniform(low, low + 0.7, len(axes)) for low in (-0.2, 0.6))
            roi = np.concatenate([starts, ends]).astype(np.float32)
    if draw(st.booleans()):
        scales = [*chance.uniform(0.3, 3, 20), 0.5, 1, 2]
        scales = [chance.choice(scales) if axis in changed else 1 for axis in axes]
        return opset, (x, roi, np.array(scales, np.float32), None), attributes
    sizes = [chance.integers(1, 12) if axis in changed else shape[axis] for axis in axes]
    if "axes" in attributes and sorted(axes) == changed:
        policies = ["stretch", "not_larger", "not_smaller"]
        attributes["keep_aspect_ratio_policy"] = draw(st.sampled_from(policies))
    return opset, (x, roi, None, np.array(sizes, np.int64)), attributes


@settings(max_examples=drawn(400), derandomize=True, database=None)
@given(case=resizes())
def test_any_resize_is_onnxruntimes(core, case) -> None:
    opset, inputs, attributes = case
    model = model_of(opset, inputs, attributes)
    expected = by_onnxruntime(model, inputs[0])
    for device in ("REFERENCE", "CPU"):
        with core.load_network(model, device) as network:
            made = network.create_infer_request().infer_sync({"x": inputs[0]})["y"]
        assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
        error = np.abs(made.astype(np.float64) - expected.astype(np.float64)).max(initial=0)
        if made.dtype.kind == "f":
            largest = max(1.0, float(np.abs(expected).max(initial=0)))
            assert error <= BOUNDS[made.dtype.name] * largest
        else:  # what is filtered is rounded, and a half of 8 bits may be rounded to either side
            assert error <= (attributes.get("antialias", 0) if made.dtype.itemsize == 1 else 0)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(("height", "width"), [(11, 7), (30, 9), (8, 40), (25, 41)])
def test_what_is_filtered_of_int32_is_rounded_as_onnxruntime_rounds_it(
    core, mode, height, width
) -> None:
    """Sums in double precision lie beside a half where onnxruntime's lie on it."""
    x = np.random.default_rng(height).integers(-99, 99, (2, 1, 25, 31)).astype(np.int32)
    inputs = (x, None, None, np.array([2, 1, height, width]))
    model = model_of(19, inputs, {"mode": mode, "antialias": 1})
    expected = by_onnxruntime(model, x)
    for device in ("REFERENCE", "CPU"):
        with core.load_network(model, device) as network:
            made = network.create_infer_request().infer_sync({"x": x})["y"]
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize(
    ("shape", "scales"),
    [
        ((1, 3, 37, 53), (1, 1, 1.3, 0.77)),
        ((1, 37, 53, 3), (1, 1.3, 0.77, 1)),
        ((1, 3, 7, 11, 13), (1, 1, 1.3, 1, 0.77)),
    ],
)
@pytest.mark.parametrize("is_flat", [False, True])
def test_integers_are_cut_where_onnxruntime_cuts_them(core, dtype, shape, scales, is_flat) -> None:
    bounds = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(max(bounds.min, -999), min(bounds.max, 999), shape)
    x = np.full(shape, 77, dtype) if is_flat else x.astype(dtype)
    inputs = (x, None, np.array(scales, np.float32), None)
    model = model_of(19, inputs, {"mode": "linear"})
    expected = by_onnxruntime(model, x)
    for device in ("REFERENCE", "CPU"):
        with core.load_network(model, device) as network:
            made = network.create_infer_request().infer_sync({"x": x})["y"]
        np.testing.assert_array_equal(made, expected)


def test_what_is_filtered_of_int8_keeps_its_sign() -> None:
    x = np.linspace(-100, 100, 16).round().astype(np.int8).reshape(4, 4)
    half = np.array([0.5, 0.5], np.float32)
    made = by_plain(x, None, half, mode="linear", antialias=1)
    wanted = by_plain(x.astype(np.float32), None, half, mode="linear", antialias=1)
    assert made.min() < 0
    assert np.abs(made - wanted).max() <= 1


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
            (np.zeros(3, np.float32), np.full(1, 2, np.float32)),
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
