from __future__ import annotations

import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

X = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(0, 1, 2, 0, 0, 1), (2, 0, 0, 1, 0, 4), (0, 0, 0, 0, 0, 0)])
def test_every_mode_pads_any_side(mode: str, pads: tuple[int, ...], core: Core) -> None:
    constants = {"pads": np.array(pads)}
    model = model_of([operator("Pad", "x", "pads", mode=mode)], {"x": X}, constants=constants)
    assert_same_as_reference(core, model, {"x": X})


@pytest.mark.parametrize(
    "pads",
    [(0, -1, 2, 0, 1, -2), (-1, -1, -1, 0, -1, -1), (-5, 0, 0, 4, 0, 0), (0, 1, 3, 0, 1, -6)],
)
def test_a_negative_pad_takes_elements_away(pads: tuple[int, ...], core: Core) -> None:
    constants = {"pads": np.array(pads)}
    model = model_of([operator("Pad", "x", "pads")], {"x": X}, constants=constants)
    assert_same_as_reference(core, model, {"x": X})


@pytest.mark.parametrize("dtype", [np.bool_, np.int16, np.int64, np.float16])
def test_axes_and_value_hold_for_any_type(dtype: type, core: Core) -> None:
    inputs = {"x": (X * 3).astype(dtype)}
    constants = {
        "pads": np.array([1, 2, 0, 1]),
        "value": np.array(1, dtype),
        "axes": np.array([-1, 0]),
    }
    model = model_of([operator("Pad", "x", *constants)], inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)


def test_the_value_may_come_with_the_run(core: Core) -> None:
    inputs = {"x": X, "value": np.array(7, np.float32)}
    constants = {"pads": np.array([0, 0, 1, 1, 0, 0])}
    model = model_of([operator("Pad", "x", "pads", "value")], inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)
