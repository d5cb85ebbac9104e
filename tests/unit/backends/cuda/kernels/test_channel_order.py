"""Maps with channels first as maps with channels last: of any type, with channels of zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from exhaustive import all_but
from unit.backends.comparing import assert_same_on, model_of, operator
from unit.backends.cuda.kernels.plans import labels_of, plan_of

CHANCE = np.random.default_rng(9)
IMAGE = CHANCE.standard_normal((2, 3, 5, 7)).astype(np.float32)


def filters(count: int, channels: int) -> np.ndarray[Any, Any]:
    return CHANCE.standard_normal((count, channels, 2, 2)).astype(np.float32)


@pytest.mark.parametrize("hint", all_but(["f16"], ["f32", "f16", "bf16"]))
@pytest.mark.parametrize("channels", [1, 3, 4, 5, 8])
def test_images_of_any_number_of_channels(stand_in_core: Core, channels: int, hint: str) -> None:
    image = CHANCE.standard_normal((2, channels, 5, 6)).astype(np.float32)
    constants = {"w": filters(6, channels)}
    model = model_of([operator("Conv", "x", "w")], {"x": image}, constants=constants)
    bound = {"f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}[hint]
    config = {"INFERENCE_PRECISION_HINT": hint}
    assert_same_on("STANDIN", stand_in_core, model, {"x": image}, bound=bound, **config)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16"])
def test_maps_of_other_types_beside_a_convolution(stand_in_core: Core, dtype: str) -> None:
    """What is asked for between two convolutions has channels last there, whatever its type is."""
    inputs = {"x": IMAGE, "m": CHANCE.integers(0, 2, (2, 3, 4, 6)).astype(dtype)}
    constants = {"w": filters(3, 3), "v": filters(4, 3)}
    nodes = [
        operator("Conv", "x", "w", outputs=["a"]),
        operator("Sigmoid", "a", outputs=["s"]),
        operator("Cast", "m", to=1, outputs=["f"]),
        operator("Cast", "m", to=9, outputs=["c"]),
        operator("Where", "c", "a", "s", outputs=["b"]),
        operator("Add", "b", "f", outputs=["d"]),
        operator("Conv", "d", "v"),
    ]
    for number, node in enumerate(nodes):
        node.name = f"n{number}"
    model = model_of(nodes, inputs, constants=constants)
    assert_same_on("STANDIN", stand_in_core, model, inputs)


def test_maps_that_are_only_moved(stand_in_core: Core) -> None:
    """Nothing is computed in float64 here, but a map of it is joined to one with channels last."""
    inputs = {
        "x": CHANCE.standard_normal((1, 4, 4, 3)),
        "z": CHANCE.standard_normal((1, 2, 4, 4)),
        "i": IMAGE[:1, :, :4, :4],
    }
    nodes = [
        operator("Transpose", "x", perm=[0, 3, 1, 2], outputs=["f"]),
        operator("Concat", "f", "z", axis=1, outputs=["j"]),
        operator("Transpose", "j", perm=[0, 2, 3, 1], outputs=["l"]),
        operator("Conv", "i", "w"),
    ]
    nodes[2].name = "back"
    model = model_of(nodes, inputs, ("l", "y"), {"w": filters(2, 3)})
    assert labels_of(plan_of(model, inputs)) == ["to_last", "concat", "to_last", "CONV", "copy"]
    assert_same_on("STANDIN", stand_in_core, model, inputs)


def test_what_prepares_an_image_is_one_launch_with_the_turn() -> None:
    inputs = {"x": np.zeros((1, 3, 8, 8), np.uint8)}
    constants = {"w": filters(4, 3), "s": np.float32(2)}
    nodes = [
        operator("Cast", "x", to=1, outputs=["f"]),
        operator("Div", "f", "s", outputs=["d"]),
        operator("Conv", "d", "w"),
    ]
    plan = plan_of(model_of(nodes, inputs, constants=constants), inputs)
    assert labels_of(plan)[:2] == ["to_last", "CONV"]
