from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import (
    F16_BOUND,
    assert_same_as_reference,
    model_of,
    operator,
)

X = np.random.default_rng(0).standard_normal((1, 2, 5, 6)).astype(np.float32)
COORDINATES = [
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
]


def resized(
    core: Core,
    x: np.ndarray,
    constants: dict[str, np.ndarray],
    bound: float = 1e-5,
    **attributes: Any,
) -> None:
    names = [name if name in constants else "" for name in ("roi", "scales", "sizes")]
    node = operator("Resize", "x", *names, **attributes)
    model = model_of([node], {"x": x}, constants=constants)
    assert_same_as_reference(core, model, {"x": x}, bound=bound)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", [(1, 1, 2, 1.5), (1, 1, 0.6, 0.5)], ids=["up", "down"])
def test_modes_and_coordinates(
    mode: str, coordinates: str, scales: tuple[float, ...], core: Core
) -> None:
    constants = {"scales": np.array(scales, np.float32)}
    resized(core, X, constants, mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_sizes_of_some_axes(policy: str, core: Core) -> None:
    constants = {"sizes": np.array([7, 9])}
    resized(core, X, constants, mode="linear", axes=[3, 2], keep_aspect_ratio_policy=policy)


@pytest.mark.parametrize("rounding", ["ceil", "floor", "round_prefer_ceil", "round_prefer_floor"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16])
def test_nearest_neighbours_of_any_type(rounding: str, dtype: type, core: Core) -> None:
    constants = {"scales": np.array([1, 1, 1.5, 3], np.float32)}
    resized(core, (X * 9).astype(dtype), constants, nearest_mode=rounding)


@pytest.mark.parametrize(
    "attributes",
    [{"antialias": 1}, {"exclude_outside": 1}, {"cubic_coeff_a": -0.5}],
    ids=lambda attributes: next(iter(attributes)),
)
def test_settings_of_the_cubic_kernel(attributes: dict[str, Any], core: Core) -> None:
    constants = {"scales": np.array([1, 1, 0.6, 0.7], np.float32)}
    resized(core, X, constants, mode="cubic", **attributes)


def test_a_crop_beyond_the_input_gives_a_number(core: Core) -> None:
    constants = {
        "roi": np.array([0, 0, 0.2, -0.3, 1, 1, 0.8, 1.2], np.float32),
        "sizes": np.array([1, 2, 4, 7]),
    }
    coordinates = "tf_crop_and_resize"
    resized(
        core,
        X,
        constants,
        mode="linear",
        coordinate_transformation_mode=coordinates,
        extrapolation_value=5.0,
    )


def test_float16_is_interpolated_in_float32(core: Core) -> None:
    constants = {"scales": np.array([1, 1, 2, 2], np.float32)}
    resized(core, X.astype(np.float16), constants, F16_BOUND, mode="linear")


def test_integers_are_not_interpolated(core: Core) -> None:
    x = {"x": X.astype(np.int32)}
    constants = {"scales": np.array([1, 1, 2, 2], np.float32)}
    node = operator("Resize", "x", "", "scales", mode="linear")
    answers = core.query_network(model_of([node], x, constants=constants), "OPENCL")
    assert "interpolates floats only" in answers["Resize"].reason
