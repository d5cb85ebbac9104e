from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from aioinfer.errors import UnsupportedOpError
from exhaustive import all_but
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator
from unit.backends.comparing import assert_same_on


def of_shape(*shape: int) -> np.ndarray:
    return (np.random.default_rng(41).standard_normal(shape) * 2 + 1).astype(np.float32)


def check(core: Core, node: Any, inputs: Any, constants: Any, outputs: Any = ("y",)) -> None:
    opset = 23 if node.op_type == "RMSNormalization" else 21
    model = model_of([node], inputs, outputs, constants, opset=opset)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 5, 64), -1),
        ((2, 7), 1),
        ((2, 6, 6), -1),
        ((2, 3, 4, 5), 2),
        ((4, 300), 0),
        ((9, 1), -1),
    ],
)
@pytest.mark.parametrize(
    "has_shift", all_but([True], [False, True]), ids=["scaled", "scaled and shifted"]
)
def test_layer_normalization_from_any_axis_on(shape, axis, has_shift, core: Core) -> None:
    constants = {"g": of_shape(*shape[axis:])}
    if has_shift:
        constants["b"] = of_shape(*shape[axis:])
    node = operator("LayerNormalization", "x", *constants, axis=axis, epsilon=1e-3)
    check(core, node, {"x": of_shape(*shape)}, constants)


def test_scale_and_shift_of_rows_may_broadcast(core: Core) -> None:
    constants = {"g": of_shape(5), "b": of_shape(4, 1)}
    node = operator("LayerNormalization", "x", *constants, axis=1)
    check(core, node, {"x": of_shape(3, 4, 5)}, constants)


@pytest.mark.parametrize("shape", [(3, 4, 5), (5, 8, 12), (0, 8, 12)], ids=str)
def test_layer_normalization_tells_its_statistics(shape: Any, core: Core) -> None:
    outputs = ["y", "m", "d"]
    node = operator("LayerNormalization", "x", "g", outputs=outputs, axis=1)
    check(core, node, {"x": of_shape(*shape)}, {"g": of_shape(*shape[1:])}, outputs)


def test_variances_are_those_of_differences(core: Core) -> None:
    node = operator("LayerNormalization", "x", "g")
    inputs = {"x": of_shape(2, 100) + np.float32(1000)}
    model = model_of([node], inputs, constants={"g": np.ones(100, np.float32)})
    assert_same_as_reference(core, model, inputs, bound=1e-4)  # the input has 4 digits after 1000


@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 64), -1), ((2, 3, 4, 5), 2), ((4, 300), 0)])
def test_rms_normalization_from_any_axis_on(shape, axis, core: Core) -> None:
    node = operator("RMSNormalization", "x", "g", axis=axis)
    check(core, node, {"x": of_shape(*shape)}, {"g": of_shape(*shape[axis:])})


def test_rms_normalization_to_another_type_is_left_to_others(core: Core) -> None:
    node = operator("RMSNormalization", "x", "g")
    inputs, constants = {"x": of_shape(3, 8)}, {"g": of_shape(8).astype(np.float16)}
    model = model_of([node], inputs, constants=constants, opset=23)
    assert_same_on("HETERO:OPENCL,REFERENCE", core, model, inputs)
    with pytest.raises(UnsupportedOpError, match="of float32 runs with a scale of that type"):
        core.load_network(model, "OPENCL")


@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (1, 5, 100), (2, 4, 3, 4, 5)])
def test_instance_normalization_of_any_rank(shape, core: Core) -> None:
    constants = {"g": of_shape(shape[1]), "b": of_shape(shape[1])}
    node = operator("InstanceNormalization", "x", *constants)
    check(core, node, {"x": of_shape(*shape)}, constants)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_group_normalization_of_any_number_of_groups(count: int, core: Core) -> None:
    constants = {"g": of_shape(6), "b": of_shape(6)}
    node = operator("GroupNormalization", "x", *constants, num_groups=count)
    check(core, node, {"x": of_shape(2, 6, 5, 4)}, constants)


@pytest.mark.parametrize("shape", [(2, 3, 9, 8), (4, 7), (1, 5, 2, 3, 4)])
def test_batch_normalization_that_nothing_takes_in(shape, core: Core) -> None:
    channels = shape[1]
    inputs = {"x": of_shape(*shape), "v": np.abs(of_shape(channels)) + np.float32(0.1)}
    constants = {name: of_shape(channels) for name in ("g", "b", "m")}
    node = operator("BatchNormalization", "x", "g", "b", "m", "v", epsilon=1e-3)
    check(core, node, inputs, constants)


@pytest.mark.parametrize("size", [1, 3, 4, 9])
@pytest.mark.parametrize("shape", [(2, 7, 5, 4), (2, 5, 11)])
def test_neighbouring_channels_are_normalised_together(shape, size: int, core: Core) -> None:
    node = operator("LRN", "x", size=size, alpha=0.1, beta=0.6, bias=1.5)
    check(core, node, {"x": of_shape(*shape)}, {})


def test_training_is_refused(core: Core) -> None:
    constants = {name: of_shape(3) for name in "gbmv"}
    outputs = ["y", "rm", "rv"]
    node = operator("BatchNormalization", "x", *constants, outputs=outputs, training_mode=1)
    model = model_of([node], {"x": of_shape(2, 3, 4)}, outputs, constants)
    (answer,) = core.query_network(model, "OPENCL").values()
    assert not answer.supported
    assert "for inference only" in str(answer.reason)
