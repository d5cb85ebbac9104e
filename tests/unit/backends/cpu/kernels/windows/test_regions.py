"""RoiAlign by the native kernel equals REFERENCE, whatever the regions are."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from onnx import helper

from aioinfer import Core
from aioinfer.backends.cpu.native.step_runner import double_bits
from aioinfer.errors import TensorError
from unit.backends.cpu.arrays import numbers
from unit.backends.cpu.comparing import assert_same_as_reference, model_of, run
from unit.backends.cpu.kernels.stepping import implementations
from unit.backends.cpu.native_calls import run_native

X = np.random.default_rng(0).normal(size=(2, 70, 9, 7)).astype(np.float32)
REGIONS = np.array(
    [
        [0, 0, 6, 8],
        [1.3, 2.2, 5.1, 7.9],
        [-4, -3, 2, 2],
        [5, 6, 30, 20],
        [3, 3, 3, 3],
        [4, 5, 2, 3],
        [-9, -9, -5, -5],
        [0, math.nan, 5, 5],
        [0, 0, math.inf, 5],
    ],
    np.float32,
)
INPUTS = {"x": X, "r": REGIONS, "b": np.arange(len(REGIONS)) % 2}


def regions_model(
    inputs: dict[str, np.ndarray], *, dynamic: bool = False, **attributes: Any
) -> Any:
    node = helper.make_node("RoiAlign", [*inputs], ["y"], name="roi", **attributes)
    return model_of([node], inputs, dynamic=dynamic)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("form", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("size", [(1, 1), (3, 5)])
@pytest.mark.parametrize("scale", [1.0, 0.6])
def test_regions_in_and_out_of_the_image(
    core: Core, mode: str, form: str, ratio: int, size: tuple[int, int], scale: float
) -> None:
    model = regions_model(
        INPUTS,
        mode=mode,
        coordinate_transformation_mode=form,
        sampling_ratio=ratio,
        output_height=size[0],
        output_width=size[1],
        spatial_scale=scale,
    )
    assert_same_as_reference(core, model, INPUTS, INFERENCE_NUM_THREADS=2)


def test_it_is_computed_natively_also_of_sizes_that_come_with_the_run(core: Core) -> None:
    model = regions_model(INPUTS, dynamic=True, output_height=7, output_width=7)
    assert ("RoiAlign", "native:align_regions") in implementations(core, model, INPUTS)
    with core.load_network(model, "CPU") as network, core.load_network(model, "REFERENCE") as other:
        for count in (1, 2, 5, 9):
            given = {**INPUTS, "r": REGIONS[:count], "b": INPUTS["b"][:count]}
            made = network.create_infer_request().infer_sync(given)["y"]
            wanted = other.create_infer_request().infer_sync(given)["y"]
            np.testing.assert_allclose(made, wanted, atol=1e-5)


@pytest.mark.parametrize("channel", [0, 5, 17])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_counts_where_it_is_a_neighbour(
    core: Core, mode: str, number: float, channel: int
) -> None:
    x = np.zeros((1, channel + 1 if channel != 5 else 16, 8, 8), np.float32)
    x[0, channel, 7, 7] = x[0, channel, 2, 3] = number
    corners = [[0, 0, 7.5, 7.5], [2, 1, 4, 3], [0.5, 0.5, 7.5, 7.5], [-9, -9, 8, 20]]
    inputs = {"x": x, "r": np.array(corners, np.float32), "b": np.zeros(4, np.int64)}
    model = regions_model(inputs, mode=mode, output_height=3, output_width=4, sampling_ratio=2)
    made, wanted = (run(core, model, device, inputs)["y"] for device in ("CPU", "REFERENCE"))
    np.testing.assert_array_equal(np.isnan(made), np.isnan(wanted))
    np.testing.assert_allclose(made, wanted, atol=1e-6)


@pytest.mark.parametrize("bins", [(2, 3), (33, 32)])
@pytest.mark.parametrize("side", [30, 40])
def test_small_and_large_regions_are_alike(core: Core, side: int, bins: tuple[int, int]) -> None:
    x = numbers(2, 37, side, side)
    regions = np.array(
        [[0, 0, side, side], [3, 1, 9, 4], [-7, side - 3, 60, 99], [20, 2, 21, 28]], np.float32
    )
    inputs = {"x": x, "r": regions, "b": np.array([1, 0, 1, 0])}
    model = regions_model(inputs, output_height=bins[0], output_width=bins[1], sampling_ratio=2)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_threads_change_no_bit(core: Core, mode: str) -> None:
    model = regions_model(INPUTS, mode=mode, output_height=4, output_width=3)
    one, two = (
        run(core, model, "CPU", INPUTS, INFERENCE_NUM_THREADS=count)["y"] for count in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("shape", "count"), [((2, 3, 0, 7), 2), ((2, 3, 9, 7), 0), ((2, 0, 9, 7), 2)]
)
def test_nothing_to_look_at_or_for(core: Core, shape: tuple[int, ...], count: int) -> None:
    inputs = {"x": np.ones(shape, np.float32), "r": REGIONS[:count], "b": INPUTS["b"][:count]}
    made = run(core, regions_model(inputs, output_height=2), "CPU", inputs)["y"]
    assert made.shape == (count, shape[1], 2, 1)
    assert not made.any()


@pytest.mark.parametrize("corners", [[0, 0, 1e9, 4], [0, -1e9, 4, 4]])
def test_a_region_of_too_many_points_is_a_wrong_input(core: Core, corners: list[float]) -> None:
    inputs = {"x": numbers(1, 1, 4, 4), "r": np.array([corners], np.float32), "b": np.array([0])}
    wanted = r"RoiAlign \(node 'roi'\): a region has more than 4194304 points along an axis"
    with pytest.raises(TensorError, match=wanted):
        run(core, regions_model(inputs), "CPU", inputs)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize(("end", "channels"), [(16385.0, 1), (8193.0, 4)])
def test_a_region_of_too_many_points_that_are_compared_is_a_wrong_input(
    core: Core, device: str, end: float, channels: int
) -> None:
    """They are looked at one by one: of 2^44 a request would hold its stream for days."""
    x, region = numbers(1, channels, 4, 4), np.array([[0, 0, end, end]], np.float32)
    inputs = {"x": x, "r": region, "b": np.array([0])}
    wanted = r"RoiAlign \(node 'roi'\).* 268435456.*; give smaller regions, or fewer"
    with pytest.raises(TensorError, match=wanted):
        run(core, regions_model(inputs, mode="max"), device, inputs)


@pytest.mark.parametrize("device", ["CPU", "REFERENCE"])
@pytest.mark.parametrize(("mode", "end", "count"), [("max", 8192.0, 5), ("avg", 4194304.0, 33)])
def test_regions_of_too_many_points_together_are_a_wrong_input(
    core: Core, device: str, mode: str, end: float, count: int
) -> None:
    """Each may be computed in two seconds, and a request of a megabyte has 60,000."""
    regions = np.tile(np.float32([0, 0, end, end]), (count, 1))
    inputs = {"x": numbers(1, 1, 4, 4), "r": regions, "b": np.zeros(count, np.int64)}
    wanted = r"RoiAlign \(node 'roi'\).* 268435456.*; give smaller regions, or fewer"
    with pytest.raises(TensorError, match=wanted):
        run(core, regions_model(inputs, mode=mode), device, inputs)


def test_a_large_result_may_have_more_points_than_one_region(core: Core) -> None:
    """64 each: of 4,200 regions of 1,024 elements and 65,536 points, which are 2^28 and more."""
    count, x = 4200, numbers(1, 1, 2, 2)
    regions = np.tile(np.float32([0, 0, 256, 256]), (count, 1))
    inputs = {"x": x, "r": regions, "b": np.zeros(count, np.int64)}
    model = regions_model(inputs, mode="max", output_height=32, output_width=32)
    assert run(core, model, "CPU", inputs)["y"].shape == (count, 1, 32, 32)


@pytest.mark.parametrize("image", [-1, 1, 7])
def test_a_region_of_an_image_that_is_not_there_is_a_wrong_input(core: Core, image: int) -> None:
    inputs = {"x": numbers(1, 1, 4, 4), "r": numbers(1, 4), "b": np.array([image])}
    with pytest.raises(TensorError, match=r"RoiAlign \(node 'roi'\): an index in the data is out"):
        run(core, regions_model(inputs), "CPU", inputs)


@pytest.mark.parametrize("ratio", [2, 3000])
def test_channels_of_regions_with_many_points_are_those_with_few(core: Core, ratio: int) -> None:
    """Sixteen channels go side by side, 64 in one part, and all of them where points are many."""
    x = np.random.default_rng(3).normal(size=(1, 150, 9, 7)).astype(np.float32)
    inputs = {"x": x, "r": REGIONS[:5], "b": np.zeros(5, np.int64)}
    model = regions_model(inputs, sampling_ratio=ratio, output_height=2, output_width=1)
    assert_same_as_reference(core, model, inputs, INFERENCE_NUM_THREADS=2, bound=1e-4)


def test_points_are_placed_once_for_all_channels() -> None:
    """A region of 2**18 points along an axis costs about the same for 64 channels and for 2,048."""

    def seconds(channels: int) -> float:
        x = np.ones((1, channels, 2, 2), np.float32)
        made = np.empty((1, channels, 1, 1), np.float32)
        operands = [x, np.array([[0, 0, 1, 1]], np.float32), np.zeros(1, np.int64), made]
        words = (*x.shape, 1, 1, 1, 1 << 18, 0, 0, double_bits(1.0))
        times = []
        for _ in range(3):
            before = time.thread_time()
            run_native("align_regions", operands, words, 1)
            times.append(time.thread_time() - before)
        np.testing.assert_allclose(made, 1, atol=1e-3)
        return min(times)

    assert seconds(2048) < 8 * seconds(64)
