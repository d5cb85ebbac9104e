from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer import Core
from exhaustive import all_but
from unit.backends.accelerator.comparing import (
    BF16_BOUND,
    F16_BOUND,
    assert_close,
    assert_same_as_reference,
    model_of,
    operator,
    run,
)


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


ROWS_IN_BLOCKS = [(5, 96), (3, 384), (7, 512), (2, 3, 768), (1, 2048)]


@pytest.mark.parametrize("shape", ROWS_IN_BLOCKS, ids=str)
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_rows_of_whole_blocks_are_read_as_words(op: str, shape: Any, core: Core) -> None:
    constants = {"g": of_shape(shape[-1])}
    if op == "LayerNormalization":
        constants["b"] = of_shape(1, shape[-1])
    check(core, operator(op, "x", *constants, axis=-1), {"x": of_shape(*shape)}, constants)


@pytest.mark.parametrize(
    ("dtype", "bound"), [(np.float16, F16_BOUND), (ml_dtypes.bfloat16, BF16_BOUND)]
)
def test_rows_of_whole_blocks_in_half_precision(dtype: Any, bound: float, core: Core) -> None:
    inputs = {"x": of_shape(5, 768).astype(dtype)}
    constants = {name: of_shape(768).astype(dtype) for name in "gb"}
    node = operator("LayerNormalization", "x", *constants)
    found = run(core, model_of([node], inputs, constants=constants, opset=21), "OPENCL", inputs)
    x, g, b = (array.astype(np.float64) for array in (inputs["x"], *constants.values()))
    centred = x - x.mean(1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * g + b
    assert_close("y", found["y"], wanted.astype(dtype), bound)


def test_a_scale_of_columns_is_none_of_rows(core: Core) -> None:
    inputs, constants = {"x": of_shape(64, 64)}, {"g": of_shape(64, 1)}
    node = operator("InstanceNormalization", "x", "g", "s")
    check(core, node, {"x": of_shape(2, 64, 64)}, {"g": of_shape(64), "s": of_shape(64)})
    node = operator("LayerNormalization", "x", "g", axis=0)
    check(core, node, inputs, constants)


def test_scale_and_shift_of_rows_may_broadcast(core: Core) -> None:
    constants = {"g": of_shape(5), "b": of_shape(4, 1)}
    node = operator("LayerNormalization", "x", *constants, axis=1)
    check(core, node, {"x": of_shape(3, 4, 5)}, constants)


def test_layer_normalization_tells_its_statistics(core: Core) -> None:
    outputs = ["y", "m", "d"]
    node = operator("LayerNormalization", "x", "g", outputs=outputs, axis=1)
    check(core, node, {"x": of_shape(3, 4, 5)}, {"g": of_shape(4, 5)}, outputs)


def test_variances_are_those_of_differences(core: Core) -> None:
    node = operator("LayerNormalization", "x", "g")
    inputs = {"x": of_shape(2, 100) + np.float32(1000)}
    model = model_of([node], inputs, constants={"g": np.ones(100, np.float32)})
    assert_same_as_reference(core, model, inputs, bound=1e-4)  # the input has 4 digits after 1000


@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 64), -1), ((2, 3, 4, 5), 2), ((4, 300), 0)])
def test_rms_normalization_from_any_axis_on(shape, axis, core: Core) -> None:
    node = operator("RMSNormalization", "x", "g", axis=axis)
    check(core, node, {"x": of_shape(*shape)}, {"g": of_shape(*shape[axis:])})


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
