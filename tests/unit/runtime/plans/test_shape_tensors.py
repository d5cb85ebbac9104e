from __future__ import annotations

import numpy as np
import pytest

from aioinfer.runtime.plans.shape_tensors import ShapeTensors, with_contents
from onnx_text import parse

WANTED = {"Reshape": (1,), "Slice": (1, 2)}
KNOWN = ShapeTensors(
    lambda node: WANTED.get(node.op_type, ()),
    lambda node: "no kernel" if node.op_type == "NonZero" else None,
)


def test_an_input_that_decides_a_shape_is_named() -> None:
    model = parse("g (float[2,3] x, int64[1] s) => (float[n] y) { y = Reshape(x, s) }")
    assert KNOWN.names(model.graph) == ["s"]
    assert KNOWN.find_unknown(model.node("Reshape_0")) is None


def test_what_shapes_alone_determine_needs_no_content() -> None:
    model = parse("g (float[2,3] x) => (float[n,m] y) { s = Shape(x) y = Reshape(x, s) }")
    assert KNOWN.names(model.graph) == []


@pytest.mark.parametrize("of_a_piece", [False, True])
def test_what_another_device_computes_of_data_is_unknown(of_a_piece: bool) -> None:
    text = "i = NonZero(x) s = ArgMax<axis = 1, keepdims = 0>(i) y = Reshape(x, s)"
    model = parse(f"g (float[2,3] x) => (float[n,m] y) {{ {text} }}")
    reason = KNOWN.find_unknown(model.node("Reshape_0"), of_a_piece=of_a_piece)
    assert (reason is None) is of_a_piece
    assert of_a_piece or "depends on the content of 'i'" in str(reason)


def test_contents_become_constants_for_whoever_uses_them() -> None:
    model = parse("g (float[2,3] x, int64[1] s) => (float[n] y) { y = Reshape(x, s) }")
    known = with_contents(model, {"s": np.array([6])})
    (node,) = known.graph.nodes
    assert node.inputs[1] is not None
    np.testing.assert_array_equal(node.inputs[1].constant, [6])
    assert [value.name for value in known.inputs] == ["x", "s"]
    assert with_contents(model, {}) is model
