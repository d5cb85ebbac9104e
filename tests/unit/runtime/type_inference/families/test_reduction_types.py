"""Types of reductions, by hand and beside onnx's."""

import random
from typing import Any

import numpy as np
import pytest

from aioinfer.runtime.type_inference import ContradictionError, ShapeContent, find_rule
from unit.runtime.type_inference.beside_onnx import assert_like_onnx
from unit.runtime.type_inference.typed_nodes import Given, make_node, ruled

CASES: list[tuple[list[Given], dict[str, int], str | None]] = [
    (["float32[n,3,?]"], {}, "float32[1,1,1]"),
    (["float32[n,3,?]"], {"keepdims": 0}, "float32[]"),
    (["float32[n,3,?]", np.array([-1])], {}, "float32[n,3,1]"),
    (["float32[n,3,?]", np.array([0, 2])], {"keepdims": 0}, "float32[3]"),
    (["float32[n,3]", np.array([], np.int64)], {}, "float32[1,1]"),
    (["float32[n,3]", np.array([], np.int64)], {"noop_with_empty_axes": 1}, "float32[n,3]"),
    (["float32[n,3]"], {"noop_with_empty_axes": 1}, "float32[n,3]"),
    (["float32[n,3]", np.array([0])], {"noop_with_empty_axes": 1}, "float32[1,3]"),
    (["float32[n,3]", np.array([2])], {}, None),
    (["float32[n,3]", np.array([0, -2])], {}, None),
    (["float32[n,3,1]", "int64[1]"], {}, "float32[?,?,1]"),
    (["float32[n,3]", "int64[1]"], {"keepdims": 0}, None),
    ([], {}, None),
]


@pytest.mark.parametrize(("inputs", "attributes", "expected"), CASES)
def test_a_reduction_leaves_one_element_or_none(
    inputs: list[Given], attributes: dict[str, int], expected: str | None
) -> None:
    assert ruled("ReduceSum", inputs, attributes) == (None if expected is None else [expected])


def test_the_place_of_an_extreme_is_an_integer() -> None:
    assert ruled("ArgMax", ["float32[n,3]"], {"axis": -1}) == ["int64[n,1]"]
    assert ruled("ArgMin", ["float32[n,3]"], {"keepdims": 0}) == ["int64[3]"]
    assert ruled("ArgMax", ["float32[n,3]"], {"axis": 2}) is None
    assert ruled("ArgMax", [], {}) is None


KINDS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@pytest.mark.parametrize("kind", KINDS)
def test_reductions_are_typed_as_onnx_types_them(kind: str) -> None:
    op_type = f"Reduce{kind}"
    chance = random.Random(op_type)
    for _ in range(20):
        rank = chance.randint(1, 4)
        shape = ",".join(str(chance.randint(1, 4)) for _ in range(rank))
        axes = chance.sample(range(rank), chance.randint(0, rank))
        attributes: dict[str, Any] = {"keepdims": chance.randint(0, 1)}
        if axes or chance.random() < 0.5:
            attributes["noop_with_empty_axes"] = chance.randint(0, 1)
        signed = [axis - rank if chance.random() < 0.5 else axis for axis in axes]
        assert_like_onnx(op_type, [f"float32[{shape}]", np.array(signed, np.int64)], attributes)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_places_of_extremes_are_typed_as_onnx_types_them(op_type: str) -> None:
    for axis in range(-3, 3):
        for keepdims in (0, 1):
            assert_like_onnx(op_type, ["int8[2,3,4]"], {"axis": axis, "keepdims": keepdims})


def test_axes_are_no_matrix() -> None:
    node = make_node("ReduceSum", ["float32[2,3]", "int64[1,2]"], {})
    rule = find_rule(node)
    assert rule is not None
    with pytest.raises(ContradictionError, match="the list of axes of shape"):
        rule(node, ShapeContent())
