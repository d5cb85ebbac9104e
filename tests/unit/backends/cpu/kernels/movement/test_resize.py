"""Resize on CPU equals REFERENCE, in every mode, and keeps the layout that it is given."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.onednn.bindings import open_engine
from aioinfer.errors import UnsupportedOpError
from exhaustive import drawn
from unit.backends.cpu.comparing import BF16_BOUND, assert_same_as_reference, model_of, run
from unit.backends.cpu.compiled_plans import plan_of
from unit.backends.cpu.kernels.stepping import implementations, run_kernel

EXAMPLES = settings(max_examples=drawn(30), derandomize=True)
COORDINATES = [
    "align_corners",
    "asymmetric",
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
]
NEAREST = ["ceil", "floor", "round_prefer_ceil", "round_prefer_floor"]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def resize(x, *, scales=None, sizes=None, roi=None, dynamic=False, **attributes):
    """Make a model of one Resize with constant scales or sizes."""
    constants = {}
    if roi is not None:
        constants["roi"] = np.array(roi, np.float32)
    if scales is not None:
        constants["scales"] = np.array(scales, np.float32)
    if sizes is not None:
        constants["sizes"] = np.array(sizes, np.int64)
    inputs = ["x", *(name if name in constants else "" for name in ("roi", "scales", "sizes"))]
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node("Resize", inputs, ["y"], **attributes)
    return model_of([node], {"x": x}, ["y"], constants, dynamic=dynamic)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", NEAREST)
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.6, 0.5), (1, 2, 1, 2.5)])
def test_nearest(core: Core, coordinates: str, rounding: str, scales: tuple) -> None:
    x = random(1, 2, 3, 4)
    model = resize(
        x,
        scales=scales,
        mode="nearest",
        nearest_mode=rounding,
        coordinate_transformation_mode=coordinates,
    )
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.6, 0.5)])
@pytest.mark.parametrize("antialias", [0, 1])
@pytest.mark.parametrize("exclude", [0, 1])
def test_interpolation(
    core: Core, coordinates: str, mode: str, scales: tuple, antialias: int, exclude: int
) -> None:
    if exclude and mode == "linear" and not antialias:
        exclude = 0  # onnx.reference fails
    x = random(1, 2, 3, 4)
    model = resize(
        x,
        scales=scales,
        mode=mode,
        antialias=antialias,
        exclude_outside=exclude,
        coordinate_transformation_mode=coordinates,
    )
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_of_some_axes(core: Core, policy: str, mode: str) -> None:
    x = random(2, 3, 4, 5)
    model = resize(x, sizes=(7, 8), axes=[3, 2], mode=mode, keep_aspect_ratio_policy=policy)
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("roi", [(0.2, 0.3, 0.8, 0.7), (-0.2, 0.1, 1.2, 0.9)])
def test_cropping(core: Core, mode: str, roi: tuple) -> None:
    x = random(1, 2, 4, 5)
    model = resize(
        x,
        sizes=(3, 4),
        axes=[2, 3],
        roi=roi,
        mode=mode,
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=10.0,
    )
    assert_same_as_reference(core, model, {"x": x})


def test_cubic_coefficient(core: Core) -> None:
    x = random(1, 1, 4, 4)
    model = resize(x, scales=(1, 1, 2, 2), mode="cubic", cubic_coeff_a=-0.5)
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("shape", [(5,), (2, 5), (1, 2, 2, 3, 4), (1, 1, 2, 2, 2, 3)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_ranks(core: Core, shape: tuple, mode: str) -> None:
    x = random(*shape)
    scales = [1.0] * max(0, len(shape) - 3) + [2.0] * min(3, len(shape))
    model = resize(x, scales=scales, mode=mode, dynamic=True)
    assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float64, np.bool_]
)
def test_nearest_of_other_types(core: Core, dtype: type) -> None:
    x = np.random.default_rng(0).integers(0, 2, (1, 3, 4, 5)).astype(dtype)
    model = resize(x, scales=(1, 1, 2, 2), mode="nearest")
    got = run(core, model, "CPU", {"x": x})["y"]
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, x.repeat(2, axis=2).repeat(2, axis=3))


def test_nothing_to_do_and_nothing_there(core: Core) -> None:
    x = random(1, 2, 3, 4)
    np.testing.assert_array_equal(
        run(core, resize(x, scales=(1, 1, 1, 1), mode="linear"), "CPU", {"x": x})["y"], x
    )
    empty = random(0, 2, 3, 4)
    got = run(core, resize(empty, scales=(1, 1, 2, 2), mode="linear"), "CPU", {"x": empty})
    assert got["y"].shape == (0, 2, 6, 8)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_channels_last_stay_so(core: Core, threads: int, precision: str, mode: str) -> None:
    x, w = random(1, 6, 7, 3), random(3, 3, 1, 1)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Resize", ["t", "", "scales"], ["r"], mode=mode),
        helper.make_node("Transpose", ["r"], ["y"], perm=[0, 2, 3, 1]),
    ]
    scales = np.array([1, 1, 2, 2], np.float32)
    model = model_of(nodes, {"x": x}, ["y"], {"scales": scales, "w": w})
    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
    bound = BF16_BOUND if precision == "bf16" else 1e-5
    assert_same_as_reference(core, model, {"x": x}, bound=bound, **config)
    kernels = implementations(core, model, {"x": x}, INFERENCE_NUM_THREADS=threads)
    expected = ["native:sample_grid"] if mode == "nearest" else ["native:resample"] * 2
    assert [name for op, name in kernels if op == "Resize"] == expected


def test_upsampling_of_a_feature_map_is_one_step(core: Core) -> None:
    x, w = random(1, 8, 10, 10), random(16, 8, 3, 3)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Resize", ["c", "", "scales"], ["y"], mode="nearest"),
    ]
    scales = np.array([1, 1, 2, 2], np.float32)
    model = model_of(nodes, {"x": x}, ["y"], {"scales": scales, "w": w})
    convolved = run(core, model_of(nodes[:1], {"x": x}, ["c"], {"w": w}), "CPU", {"x": x})["c"]
    got = run(core, model, "CPU", {"x": x})["y"]
    np.testing.assert_array_equal(got, convolved.repeat(2, axis=2).repeat(2, axis=3))
    steps = [name for op, name in implementations(core, model, {"x": x}) if op == "Resize"]
    assert steps[-1] == "native:sample_grid"
    assert len(steps) <= 2


def test_upsample_of_old_files(core: Core) -> None:
    x = random(1, 2, 3, 3)
    node = helper.make_node("Upsample", ["x", "scales"], ["y"], mode="nearest")
    scales = np.array([1, 1, 2, 2], np.float32)
    model = model_of([node], {"x": x}, ["y"], {"scales": scales}, opset=9)
    got = run(core, model, "CPU", {"x": x})["y"]
    np.testing.assert_array_equal(got, x.repeat(2, axis=2).repeat(2, axis=3))


def test_sizes_may_be_an_input(core: Core) -> None:
    x = random(1, 1, 4, 4)
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")
    first = np.array([1, 1, 8, 6])
    model = model_of([node], {"x": x, "sizes": first}, dynamic=True)
    for sizes in (first, np.array([1, 1, 2, 3]), first):
        assert_same_as_reference(core, model, {"x": x, "sizes": sizes})


@pytest.mark.parametrize(
    ("dtype", "attributes", "reason"),
    [
        (np.float32, {"mode": "nearest", "antialias": 1}, "no antialiasing"),
    ],
)
def test_refusals(core: Core, dtype: type, attributes: dict, reason: str) -> None:
    x = np.zeros((1, 1, 2, 2), dtype)
    with pytest.raises(UnsupportedOpError, match=reason):
        core.load_network(resize(x, scales=(1, 1, 2, 2), **attributes), "CPU")


@given(data=st.data())
@EXAMPLES
def test_random_resizes(core: Core, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    x = random(*data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank)))
    mode = data.draw(st.sampled_from(["nearest", "linear", "cubic"]))
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": data.draw(st.sampled_from(COORDINATES)),
        "nearest_mode": data.draw(st.sampled_from(NEAREST)),
    }
    if mode != "nearest":
        attributes["antialias"] = data.draw(st.integers(0, 1))
        if mode == "cubic" or attributes["antialias"]:  # onnx.reference fails for the others
            attributes["exclude_outside"] = data.draw(st.integers(0, 1))
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=rank, max_size=rank))
    if data.draw(st.booleans()):
        model = resize(x, sizes=lengths, **attributes)
    else:
        scales = [data.draw(st.sampled_from([1.0, 0.5, 2.0, 1.5, 3.0])) for _ in lengths]
        if any(int(scale * length) < 1 for scale, length in zip(scales, x.shape, strict=True)):
            scales = [2.0] * rank
        model = resize(x, scales=scales, **attributes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx.reference divides by zero at lengths of 1
        assert_same_as_reference(core, model, {"x": x})


@pytest.mark.parametrize("part", [1, 2, 4, 8, 12])
def test_sample_grid_as_numpy_does(part: int) -> None:
    rng = np.random.default_rng(part)
    source = rng.integers(0, 256, (3, 4, 5, part), dtype=np.uint8)
    rows = rng.integers(0, 4, 7, dtype=np.int32)
    columns = rng.integers(0, 5, 6, dtype=np.int32)
    target = np.zeros((3, 7, 6, part), np.uint8)
    parameters = (3, 4, 5, 7, 6, part)
    run_kernel(open_engine(), "sample_grid", (source, rows, columns, target), parameters)
    np.testing.assert_array_equal(target, source[:, rows[:, None], columns])


@pytest.mark.parametrize("inner", [1, 3, 300])
def test_resample_as_numpy_does(inner: int) -> None:
    rng = np.random.default_rng(inner)
    source = rng.standard_normal((2, 5, inner)).astype(np.float32)
    indices = rng.integers(0, 5, (4, 3), dtype=np.int32)
    weights = rng.standard_normal((4, 3)).astype(np.float32)
    weights[1] = 0
    offsets = rng.standard_normal(4).astype(np.float32)
    target = np.zeros((2, 4, inner), np.float32)
    parameters = (2, 5, 4, inner, 3)
    run_kernel(open_engine(), "resample", (source, indices, weights, offsets, target), parameters)
    wanted = np.einsum("otki,kt->oki", source[:, indices.T], weights) + offsets[:, None]
    np.testing.assert_allclose(target, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("scales", "first"), [((1, 1, 2, 2), (3, 8)), ((1, 1, 0.5, 0.5), (2, 4))])
def test_elements_are_interpolated_where_rows_are_few(core: Core, scales: tuple, first) -> None:
    x = random(1, 2, *(3, 4) if scales[2] > 1 else (4, 4))
    model = resize(x, scales=scales, mode="linear")
    assert_same_as_reference(core, model, {"x": x})
    steps = plan_of(core, model, {"x": x}).steps
    assert [step.implementation for step in steps] == ["native:resample"] * 2
    assert steps[0].writes[0].shape[2:] == first
