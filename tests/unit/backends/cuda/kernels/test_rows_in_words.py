"""Normalised rows that are read as words: what REFERENCE gives, and which rows are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer import Core
from unit.backends.accelerator.comparing import BF16_BOUND, F16_BOUND
from unit.backends.comparing import assert_same_on, model_of, operator
from unit.backends.cuda.kernels.plans import plan_of

ROWS = [(5, 96), (3, 384), (7, 512), (2, 3, 768), (1, 1024), (1, 1, 64)]


def of_shape(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng(41).standard_normal(shape) * 2 + 1).astype(dtype)


def checked(core: Core, node: Any, inputs: Any, outputs: Any = ("y",), bound: float = 1e-5) -> str:
    """Compare with REFERENCE, and return the kernel."""
    given = {"x": inputs["x"]}
    constants = {name: array for name, array in inputs.items() if name != "x"}
    opset = 23 if node.op_type == "RMSNormalization" else 21
    model = model_of([node], given, outputs, constants, opset=opset)
    assert_same_on("STANDIN", core, model, given, bound=bound)
    (launch,) = plan_of(model, given).launches
    return launch.source.text


@pytest.mark.parametrize("shape", ROWS, ids=str)
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_rows_of_whole_blocks_are_read_as_words(op: str, shape: Any, stand_in_core: Core) -> None:
    inputs = {"x": of_shape(*shape), "g": of_shape(shape[-1])}
    if op == "LayerNormalization":
        inputs["b"] = of_shape(1, shape[-1])
    text = checked(stand_in_core, operator(op, *inputs, axis=-1), inputs)
    assert "ulong2 *)x)[first + item" in text


@pytest.mark.parametrize(
    ("dtype", "bound"), [(np.float16, F16_BOUND), (ml_dtypes.bfloat16, BF16_BOUND)]
)
def test_halves_and_their_statistics(dtype: Any, bound: float, stand_in_core: Core) -> None:
    inputs = {
        name: of_shape(*shape, dtype=dtype)
        for name, shape in (("x", (5, 768)), ("g", (768,)), ("b", (768,)))
    }
    outputs = ["y", "mean", "factor"]
    node = operator("LayerNormalization", *inputs, outputs=outputs)
    assert "ulong2 *)scale)[item" in checked(stand_in_core, node, inputs, outputs, bound)


@pytest.mark.parametrize(
    ("shape", "axis", "scale"),
    [((64, 64), 0, (64, 1)), ((3, 770), -1, (770,)), ((2, 4096), -1, (4096,)), ((64, 64), 1, (1,))],
)
def test_other_rows_are_read_element_by_element(
    shape: Any, axis: int, scale: Any, stand_in_core: Core
) -> None:
    inputs = {"x": of_shape(*shape), "g": of_shape(*scale)}
    node = operator("LayerNormalization", *inputs, axis=axis)
    assert "ulong2" not in checked(stand_in_core, node, inputs)


def test_a_scale_for_channels_is_none_of_a_row(stand_in_core: Core) -> None:
    inputs = {"x": of_shape(2, 64, 64), "g": of_shape(64), "b": of_shape(64)}
    checked(stand_in_core, operator("InstanceNormalization", *inputs), inputs)
