from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from exhaustive import all_but
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 5, 4), (3, 8, 3, 3), {}),
    "with steps": ((1, 3, 5, 4), (3, 5, 3, 2), {"strides": [2, 3]}),
    "cut on one side": (
        (1, 3, 5, 4),
        (3, 4, 3, 3),
        {"strides": [2, 2], "pads": [0, 1, 2, 0]},
    ),
    "dilated": ((1, 3, 5, 4), (3, 4, 3, 2), {"dilations": [2, 3], "strides": [2, 1]}),
    "grouped": ((2, 8, 5, 4), (8, 4, 3, 3), {"group": 4, "strides": [2, 2]}),
    "depthwise": ((1, 6, 5, 4), (6, 1, 4, 4), {"group": 6, "strides": [2, 2], "pads": [1] * 4}),
    "longer": (
        (1, 2, 5, 4),
        (2, 3, 2, 2),
        {"strides": [3, 3], "output_padding": [2, 1]},
    ),
    "of a length that is told": (
        (1, 2, 5, 4),
        (2, 3, 3, 3),
        {"strides": [2, 2], "output_shape": [10, 8]},
    ),
    "told, and cut": (
        (1, 2, 5, 4),
        (2, 3, 3, 3),
        {"strides": [2, 2], "output_shape": [9, 8], "pads": [1, 0, 1, 1]},
    ),
    "same, upper": ((1, 2, 5, 4), (2, 3, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [3, 2]}),
    "same, lower": ((1, 2, 5, 4), (2, 3, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
    "same, longer": (
        (1, 2, 5, 4),
        (2, 3, 3, 2),
        {"auto_pad": "SAME_LOWER", "strides": [2, 3], "output_padding": [1, 1]},
    ),
    "valid": ((1, 2, 5, 4), (2, 3, 4, 3), {"auto_pad": "VALID", "strides": [2, 2]}),
    "1 x 1": ((2, 6, 5, 4), (6, 7, 1, 1), {}),
    "one axis": ((2, 3, 9), (3, 4, 5), {"pads": [2, 1], "strides": [2]}),
    "three axes": ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [1, 2, 2]}),
}


def of_shape(*shape: int) -> np.ndarray:
    return np.random.default_rng(51).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "has_bias", all_but([True], [False, True]), ids=["without bias", "with bias"]
)
@pytest.mark.parametrize("case", CASES)
def test_a_transposed_convolution_is_right(case: str, has_bias: bool, core: Core) -> None:
    image, filters, attributes = CASES[case]
    inputs, constants = {"x": of_shape(*image)}, {"w": of_shape(*filters)}
    if has_bias:
        constants["b"] = of_shape(filters[1] * attributes.get("group", 1))
    node = operator("ConvTranspose", "x", *constants, **attributes)
    assert_same_as_reference(core, model_of([node], inputs, constants=constants), inputs)


def test_weights_may_be_computed(core: Core) -> None:
    inputs = {"x": of_shape(1, 3, 5, 4), "w": of_shape(3, 4, 2, 2)}
    node = operator("ConvTranspose", "x", "w", strides=[2, 2])
    assert_same_as_reference(core, model_of([node], inputs), inputs)


def test_sum_and_activation_are_part_of_the_convolution(core: Core) -> None:
    inputs = {"x": of_shape(1, 3, 5, 4), "r": of_shape(1, 4, 10, 8)}
    constants = {"w": of_shape(3, 4, 2, 2), "b": of_shape(4)}
    nodes = [
        operator("ConvTranspose", "x", "w", "b", outputs=["c"], strides=[2, 2]),
        operator("Add", "c", "r", outputs=["s"]),
        operator("Relu", "s"),
    ]
    model = model_of(nodes, inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)
    with core.load_network(model, "OPENCL") as network:
        assert [node.op_type for node in network.runtime_graph().nodes] == ["ConvTranspose"]
