"""MaxRoiPool on CPU, beside onnxruntime and REFERENCE."""

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
from aioinfer.errors import TensorError
from exhaustive import drawn
from unit.backends.cpu.arrays import numbers
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.stepping import implementations


def cells_model(inputs: dict[str, np.ndarray], *, dynamic: bool = False, **attributes: Any) -> Any:
    node = helper.make_node("MaxRoiPool", [*inputs], ["y"], name="roi", **attributes)
    return model_of([node], inputs, dynamic=dynamic)


def by_onnxruntime(model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0])


@st.composite
def regions(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    images, channels, height, width = (
        draw(st.integers(1, most)) for most in (3, draw(st.sampled_from([4, 40])), 20, 40)
    )
    count = draw(st.integers(1, 6))
    chance = np.random.default_rng(draw(st.integers(0, 2**16)))
    x = chance.integers(-99, 99, (images, channels, height, width)).astype(np.float32)
    corners = chance.uniform(-6, 2 * max(height, width), (count, 4))
    if draw(st.booleans()):  # halves, which are rounded away from zero
        corners = np.round(corners * 2) / 2
    owners = chance.integers(0, images, (count, 1))
    attributes = {
        "pooled_shape": [draw(st.integers(1, 7)), draw(st.integers(1, 7))],
        "spatial_scale": draw(st.sampled_from([1.0, 0.5, 0.3])),
    }
    return {"x": x, "r": np.concatenate([owners, corners], axis=1).astype(np.float32)}, attributes


@settings(max_examples=drawn(60), derandomize=True, database=None)
@given(case=regions())
def test_cells_are_those_of_onnxruntime(core: Core, case: Any) -> None:
    inputs, attributes = case
    model = cells_model(inputs, **attributes)
    wanted = by_onnxruntime(model, inputs)
    for device in ("CPU", "REFERENCE"):
        np.testing.assert_array_equal(run(core, model, device, inputs)["y"], wanted)


def test_it_is_computed_natively_also_of_sizes_that_come_with_the_run(core: Core) -> None:
    inputs = {"x": numbers(2, 70, 9, 17), "r": np.array([[1, 0, 0, 9, 6]] * 9, np.float32)}
    model = cells_model(inputs, dynamic=True, pooled_shape=[3, 2])
    assert ("MaxRoiPool", "native:pool_regions") in implementations(core, model, inputs)
    for threads in (1, 2):
        assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=threads)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_in_its_cells(core: Core, number: float) -> None:
    x = np.zeros((1, 3, 8, 30), np.float32)
    x[0, 1, 2, 3] = x[0, 2, 7, 29] = number
    corners = [[0, 0, 0, 29, 7], [0, 4, 1, 9, 5], [0, 3, 2, 3, 2], [0, 25, 6, 60, 60]]
    inputs = {"x": x, "r": np.array(corners, np.float32)}
    model = cells_model(inputs, pooled_shape=[2, 3])
    made, wanted = (run(core, model, device, inputs)["y"] for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("corner", [math.nan, math.inf, 1e30, -1e30])
@pytest.mark.parametrize("place", [1, 4])
def test_edges_may_be_any_number(core: Core, corner: float, place: int) -> None:
    region = np.array([[0, 1, 1, 3, 3]], np.float32)
    region[0, place] = corner
    inputs = {"x": numbers(1, 2, 5, 6), "r": region}
    model = cells_model(inputs, pooled_shape=[2, 2])
    made, wanted = (run(core, model, device, inputs)["y"] for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(made, wanted)
    assert math.isfinite(corner) or not made.any()


@pytest.mark.parametrize("region", [[0, 0, -3e38, 8, 3e38], [0, -3e38, 0, 3e38, 6]])
@pytest.mark.parametrize("shape", [(1, 2, 7, 9), (1, 2, 9, 7), (1, 1, 5, 31)])
def test_edges_may_be_as_far_apart_as_numbers_go(
    core: Core, shape: tuple[int, ...], region: list[float]
) -> None:
    inputs = {"x": 1 + numbers(*shape) ** 2, "r": np.array([region] * 3, np.float32)}
    made = run(core, cells_model(inputs, pooled_shape=[2, 2]), "CPU", inputs)["y"]
    assert not made.any()


@pytest.mark.parametrize(
    ("shape", "count"), [((2, 3, 0, 7), 2), ((2, 3, 9, 7), 0), ((2, 0, 9, 7), 2)]
)
def test_nothing_to_look_at_or_for(core: Core, shape: tuple[int, ...], count: int) -> None:
    inputs = {"x": np.ones(shape, np.float32), "r": np.ones((count, 5), np.float32)}
    made = run(core, cells_model(inputs, pooled_shape=[2, 1]), "CPU", inputs)["y"]
    assert made.shape == (count, shape[1], 2, 1)
    assert not made.any()


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize("image", [-1.0, 1.0, 7.0, math.nan, 1e30])
def test_a_region_of_an_image_that_is_not_there_is_a_wrong_input(
    core: Core, image: float, device: str
) -> None:
    inputs = {"x": numbers(1, 1, 4, 4), "r": np.array([[image, 0, 0, 2, 2]], np.float32)}
    with pytest.raises(TensorError, match=r"MaxRoiPool \(node 'roi'\)"):
        run(core, cells_model(inputs, pooled_shape=[1, 1]), device, inputs)
