"""Windows beside onnx.reference's formulas, and their longest length."""

from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.graph import DType, Node, Value
from aioinfer.runtime.operators import make_operator
from aioinfer.runtime.operators.own.own_windows import LONGEST_WINDOW


def window(op_type: str, size: int, **attributes) -> np.ndarray:
    node = Node(op_type, [Value("n")], [Value("y")], attributes, name="n")
    return make_operator(node, {"": 21})(np.array(size))[0]


def formula(op_type: str, size: int, periodic: int) -> np.ndarray:
    turn = 2 * np.pi * np.arange(size) / (size if periodic else size - 1)
    if op_type == "HannWindow":
        return np.sin(turn / 2) ** 2
    if op_type == "HammingWindow":
        return 25 / 46 - 21 / 46 * np.cos(turn)
    return 0.42 - 0.5 * np.cos(turn) + 0.08 * np.cos(2 * turn)


@pytest.mark.parametrize("op_type", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [0, 2, 10, (1 << 16) + 3])
def test_windows(op_type: str, periodic: int, size: int) -> None:
    found = window(op_type, size, periodic=periodic)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, formula(op_type, size, periodic), atol=1e-6)


@pytest.mark.parametrize("dtype", [DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16, DType.INT32])
def test_other_element_types(dtype: DType) -> None:
    found = window("HannWindow", 4, output_datatype=dtype.value)
    assert found.dtype == dtype.numpy
    np.testing.assert_allclose(
        found.astype(np.float64), [0, 0.5, 1, 0.5], atol=0.6 if dtype is DType.INT32 else 1e-3
    )


@pytest.mark.parametrize("size", [LONGEST_WINDOW + 1, 1 << 31, 1 << 62, -1])
def test_a_length_that_is_none_is_refused_before_memory_is_taken(size: int) -> None:
    with pytest.raises(ValueError, match="is none of 0 to"):
        window("HannWindow", size)
