"""GridSample on CPU, beside onnxruntime and REFERENCE."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from aioinfer import Core
from exhaustive import drawn
from unit.backends.cpu.arrays import numbers
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.stepping import implementations

MODES, PADDINGS = ["nearest", "linear", "cubic"], ["zeros", "border", "reflection"]


def samples_model(
    inputs: dict[str, np.ndarray], *, dynamic: bool = False, opset: int = 20, **attributes: Any
) -> Any:
    node = helper.make_node("GridSample", [*inputs], ["y"], name="grid", **attributes)
    return model_of([node], inputs, dynamic=dynamic, opset=opset)


def by_onnxruntime(model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0])


@st.composite
def samples(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Draw images or volumes, points in and out of them, and attributes that onnxruntime takes."""
    mode = draw(st.sampled_from(MODES))
    axes = draw(st.sampled_from([2] if mode == "cubic" else [2, 3]))
    lengths = draw(st.lists(st.integers(1, 9), min_size=axes, max_size=axes))
    points = draw(st.lists(st.integers(1, 12), min_size=axes, max_size=axes))
    points[-1] *= draw(st.sampled_from([1, 1, 30]))
    images, channels = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 4, 7, 66]))
    chance = np.random.default_rng(draw(st.integers(0, 2**16)))
    x = chance.standard_normal((images, channels, *lengths)).astype(np.float32)
    reach = draw(st.sampled_from([0.9, 1.5, 30.0]))
    grid = chance.uniform(-reach, reach, (images, *points, axes)).astype(np.float32)
    padding = draw(st.sampled_from(PADDINGS))
    if draw(st.booleans()):
        grid[chance.random(grid.shape) < 0.1] = np.nan
    attributes = {
        "mode": mode,
        "padding_mode": padding,
        "align_corners": draw(st.integers(0, 1)),
    }
    return {"x": x, "g": grid}, attributes


@settings(max_examples=drawn(120), derandomize=True, database=None)
@given(case=samples())
def test_points_are_those_of_onnxruntime(core: Core, case: Any) -> None:
    inputs, attributes = case
    model = samples_model(inputs, **attributes)
    wanted = by_onnxruntime(model, inputs)
    made = run(core, model, "CPU", inputs)["y"]
    assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
    if attributes["mode"] == "nearest":  # a place beside a half may be rounded to either side
        assert np.mean(made != wanted) < 0.02
    else:
        np.testing.assert_allclose(made, wanted, atol=1e-4)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lengths", [(5,), (4, 3), (30, 40), (3, 2, 4), (1, 1), (1, 5)])
def test_places_may_be_any_number(
    core: Core, lengths: tuple[int, ...], mode: str, padding_mode: str, align_corners: int
) -> None:
    chance, axes = np.random.default_rng(len(lengths)), len(lengths)
    grid = chance.uniform(-2, 2, (2, *[7, 9, 3][:axes], axes)).astype(np.float32)
    odd = chance.random(grid.shape) < 0.2
    places = [math.nan, math.inf, -math.inf, 1e10, -1e10, 3e38, -3e38, 16777217.0]
    grid[odd] = chance.choice(places, odd.sum())
    inputs = {"x": numbers(2, 5, *lengths), "g": grid}
    model = samples_model(inputs, mode=mode, padding_mode=padding_mode, align_corners=align_corners)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=2)


def test_it_is_computed_natively_also_of_sizes_that_come_with_the_run(core: Core) -> None:
    inputs = {"x": numbers(2, 6, 5, 7), "g": numbers(2, 40, 30, 2)}
    model = samples_model(inputs, dynamic=True)
    assert ("GridSample", "native:sample_points") in implementations(core, model, inputs)
    with core.load_network(model, "CPU") as network, core.load_network(model, "REFERENCE") as other:
        for count in (40, 1, 13, 2):
            given = {"x": inputs["x"], "g": inputs["g"][:, :count]}
            made = network.create_infer_request().infer_sync(given)["y"]
            wanted = other.create_infer_request().infer_sync(given)["y"]
            np.testing.assert_allclose(made, wanted, atol=1e-5)


@pytest.mark.parametrize(("old", "new"), [("bilinear", "linear"), ("bicubic", "cubic")])
def test_modes_have_other_names_in_old_models(core: Core, old: str, new: str) -> None:
    inputs = {"x": numbers(1, 2, 5, 7), "g": numbers(1, 4, 3, 2)}
    before, after = (
        run(core, samples_model(inputs, opset=opset, mode=mode), "CPU", inputs)["y"]
        for opset, mode in ((16, old), (20, new))
    )
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("place", [(0, 0), (2, 3)])
@pytest.mark.parametrize("padding_mode", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_finite_counts_where_it_is_a_neighbour(
    core: Core, mode: str, padding_mode: str, place: tuple[int, int], number: float
) -> None:
    """The first element stands for what is outside, and is made zero by a multiplication."""
    x = numbers(1, 9, 3, 4)
    x[0, 2, *place] = x[0, 5, *place] = number
    grid = np.random.default_rng(3).uniform(-1.6, 1.6, (1, 9, 9, 2)).astype(np.float32)
    inputs = {"x": x, "g": grid}
    model = samples_model(inputs, mode=mode, padding_mode=padding_mode)
    made, wanted = (run(core, model, device, inputs)["y"] for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(wanted))
    is_finite = np.isfinite(wanted)
    np.testing.assert_allclose(made[is_finite], wanted[is_finite], atol=1e-4)


@pytest.mark.parametrize(
    ("x", "grid"),
    [((0, 2, 3, 3), (0, 4, 5, 2)), ((1, 0, 3, 3), (1, 4, 5, 2)), ((1, 2, 3, 3), (1, 0, 5, 2)),
     ((1, 2, 0, 3), (1, 4, 5, 2))],
)  # fmt: skip
def test_nothing_is_sampled(core: Core, x: tuple[int, ...], grid: tuple[int, ...]) -> None:
    inputs = {"x": np.ones(x, np.float32), "g": np.zeros(grid, np.float32)}
    made = run(core, samples_model(inputs), "CPU", inputs)["y"]
    assert made.shape == (x[0], x[1], *grid[1:-1])
    assert not made.any()


def test_threads_change_no_bit(core: Core) -> None:
    inputs = {"x": numbers(2, 70, 20, 30), "g": numbers(2, 33, 34, 2)}
    model = samples_model(inputs)
    one, two = (
        run(core, model, "CPU", inputs, INFERENCE_NUM_THREADS=count)["y"] for count in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_more_axes_than_three_are_left_to_numpy(core: Core) -> None:
    inputs = {"x": numbers(1, 2, 2, 3, 2, 2), "g": numbers(1, 2, 1, 3, 1, 4)}
    model = samples_model(inputs)
    assert ("GridSample", "numpy") in implementations(core, model, inputs)
    assert_same_as_reference(core, model, inputs)
