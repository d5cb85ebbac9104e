from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer import Core
from exhaustive import all_but
from unit.backends.accelerator.comparing import assert_same_as_reference, model_of, operator

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 8, 7), (8, 3, 3, 3), {}),
    "padded on one side": ((1, 3, 8, 7), (4, 3, 3, 2), {"pads": [0, 1, 2, 0]}),
    "strided and dilated": (
        (2, 3, 11, 9),
        (5, 3, 3, 3),
        {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 1, 1, 1]},
    ),
    "grouped": ((2, 8, 6, 6), (16, 2, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "groups of odd size": ((1, 6, 6, 6), (9, 2, 3, 3), {"group": 3}),
    "depthwise": ((2, 6, 9, 8), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    "1 x 1": ((2, 6, 5, 7), (35, 6, 1, 1), {}),
    "1 x 1 with steps": ((1, 6, 5, 7), (4, 6, 1, 1), {"strides": [2, 2]}),
    "1 x 1 in groups": ((1, 6, 5, 7), (4, 3, 1, 1), {"group": 2}),
    "one axis": ((2, 3, 20), (4, 3, 5), {"pads": [2, 2], "strides": [2]}),
    "three axes": ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), {"pads": [0, 1, 0, 1, 1, 1]}),
    "same, upper": ((1, 2, 7, 8), (3, 2, 4, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
    "same, lower": ((1, 2, 7, 8), (3, 2, 4, 3), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "valid": ((1, 2, 7, 8), (3, 2, 2, 3), {"auto_pad": "VALID"}),
}


@pytest.mark.parametrize(
    "has_bias", all_but([True], [False, True]), ids=["without bias", "with bias"]
)
@pytest.mark.parametrize("case", CASES)
def test_a_convolution_is_right(case: str, has_bias: bool, core: Core) -> None:
    image, filters, attributes = CASES[case]
    random = np.random.default_rng(11)
    inputs = {"x": random.standard_normal(image).astype(np.float32)}
    constants = {"w": random.standard_normal(filters).astype(np.float32)}
    if has_bias:
        constants["b"] = random.standard_normal(filters[0]).astype(np.float32)
    model = model_of([operator("Conv", "x", *constants, **attributes)], inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)


@pytest.mark.parametrize("size", [1, 3])
def test_residual_and_activation_are_part_of_the_convolution(size: int, core: Core) -> None:
    random = np.random.default_rng(12)
    inputs = {"x": random.standard_normal((2, 4, 6, 6)).astype(np.float32)}
    constants = {
        "w": random.standard_normal((4, 4, size, size)).astype(np.float32),
        "b": random.standard_normal(4).astype(np.float32),
    }
    nodes = [
        operator("Conv", "x", "w", "b", outputs=["c"], pads=[size // 2] * 4),
        operator("Add", "c", "x", outputs=["s"]),
        operator("Relu", "s"),
    ]
    model = model_of(nodes, inputs, constants=constants)
    assert_same_as_reference(core, model, inputs)
    with core.load_network(model, "OPENCL") as network:
        assert [node.op_type for node in network.runtime_graph().nodes] == ["Conv"]
