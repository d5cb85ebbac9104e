from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from exhaustive import all_but
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

OPERATORS = ["MaxPool", "AveragePool", "LpPool"]

CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 8, 8), {"kernel_shape": [2, 2]}),
    "padded on one side": (
        (1, 5, 8, 9),
        {"kernel_shape": [3, 4], "pads": [0, 3, 2, 1], "strides": [2, 1]},
    ),
    "dilated": ((1, 3, 11, 9), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 1, 2]}),
    "rounded up": (
        (1, 4, 6, 7),
        {"kernel_shape": [3, 3], "strides": [4, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    ),
    "one axis": ((2, 3, 20), {"kernel_shape": [5], "strides": [3], "pads": [2, 1]}),
    "three axes": ((1, 2, 5, 6, 4), {"kernel_shape": [2, 3, 2], "pads": [0, 1, 0, 1, 1, 1]}),
    "four axes": ((1, 2, 3, 4, 3, 5), {"kernel_shape": [2, 2, 2, 2]}),
    "same, upper": (
        (1, 2, 7, 8),
        {"kernel_shape": [4, 3], "strides": [2, 3], "auto_pad": "SAME_UPPER"},
    ),
    "same, lower": (
        (1, 2, 7, 8),
        {"kernel_shape": [4, 3], "strides": [2, 3], "auto_pad": "SAME_LOWER"},
    ),
    "valid": ((1, 2, 7, 8), {"kernel_shape": [2, 3], "auto_pad": "VALID"}),
    "of no images": ((0, 3, 8, 8), {"kernel_shape": [2, 2]}),
}


def image_of(*shape: int) -> np.ndarray:
    return np.random.default_rng(21).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("op_type", all_but(["MaxPool"], OPERATORS))
def test_a_pool_is_right(op_type: str, case: str, core: Core) -> None:
    shape, attributes = CASES[case]
    inputs = {"x": image_of(*shape)}
    model = model_of([operator(op_type, "x", **attributes)], inputs)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("case", ["padded on one side", "rounded up", "same, lower", "one axis"])
def test_an_average_may_count_its_padding(case: str, core: Core) -> None:
    shape, attributes = CASES[case]
    inputs = {"x": image_of(*shape)}
    node = operator("AveragePool", "x", count_include_pad=1, **attributes)
    assert_same_as_reference(core, model_of([node], inputs), inputs)


@pytest.mark.parametrize("order", [0, 1], ids=["by rows", "by columns"])
@pytest.mark.parametrize("case", ["padded on one side", "dilated", "rounded up", "three axes"])
def test_max_pool_tells_where_the_first_maximum_is(case: str, order: int, core: Core) -> None:
    shape, attributes = CASES[case]
    inputs = {"x": np.random.default_rng(22).integers(0, 4, shape).astype(np.float32)}
    node = operator("MaxPool", "x", outputs=["y", "i"], storage_order=order, **attributes)
    assert_same_as_reference(core, model_of([node], inputs, ("y", "i")), inputs)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_takes_bytes(dtype: type, core: Core) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    inputs = {"x": np.random.default_rng(3).integers(low, high, (1, 2, 6, 5)).astype(dtype)}
    node = operator("MaxPool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    assert_same_as_reference(core, model_of([node], inputs), inputs)


def test_max_pool_lets_nan_and_infinities_through(core: Core) -> None:
    image = image_of(1, 1, 6, 6)
    image[0, 0, 1, 1], image[0, 0, 4] = np.nan, -np.inf
    model = model_of([operator("MaxPool", "x", kernel_shape=[1, 2])], {"x": image})
    assert_same_as_reference(core, model, {"x": image})


@pytest.mark.parametrize("power", [1, 2, 3])
def test_norms_of_any_power(power: int, core: Core) -> None:
    inputs = {"x": image_of(1, 3, 7, 7)}
    nodes = [
        operator("LpPool", "x", outputs=["y"], kernel_shape=[3, 3], p=power),
        operator("GlobalLpPool", "x", outputs=["z"], p=power),
    ]
    assert_same_as_reference(core, model_of(nodes, inputs, ("y", "z")), inputs)


@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (1, 5, 1000), (3, 4), (2, 2, 3, 4, 5)])
@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool"])
def test_a_global_pool_leaves_one_element_a_channel(op_type, shape, core: Core) -> None:
    inputs = {"x": image_of(*shape)}
    assert_same_as_reference(core, model_of([operator(op_type, "x")], inputs), inputs)
