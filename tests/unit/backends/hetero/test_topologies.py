"""Cut anywhere, the answer is that of one device."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import aioinfer
from unit.backends.hetero.small_graphs import on_one_device

HEADER = '<ir_version: 10, opset_import: ["" : 20]>\n'

# x is split over channels, the parts are convolved with the same weights, and joined again.
SPLIT_CONV_CONCAT = """
    g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    <float[2,2,3,3] w = {WEIGHTS}, float[1] shift = {0.5}> {
        [split] a, b = Split <axis = 1, num_outputs = 2> (x)
        [conv_a] c = Conv <pads = [1, 1, 1, 1]> (a, w)
        [conv_b] d = Conv <pads = [1, 1, 1, 1]> (b, w)
        [relu_a] e = Relu (c)
        [concat] f = Concat <axis = 1> (e, d)
        [shift] y = Add (f, shift)
    }
"""
# The second part goes around the convolution, and the whole twice in a row.
NESTED_SPLIT_CONV_CONCAT = """
    g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    <float[2,2,3,3] w = {WEIGHTS}> {
        [split1] a, b = Split <axis = 1, num_outputs = 2> (x)
        [conv1] c = Conv <pads = [1, 1, 1, 1]> (a, w)
        [concat1] d = Concat <axis = 1> (b, c)
        [split2] e, f = Split <axis = 1, num_outputs = 2> (d)
        [conv2] h = Conv <pads = [1, 1, 1, 1]> (e, w)
        [relu2] i = Relu (f)
        [concat2] y = Concat <axis = 1> (h, i)
    }
"""
# Two outputs, one of them made in the middle.
MANY_OUTPUTS = """
    g (float[1,4,8,8] x) => (float[1,4,8,8] y, float[1,2,8,8] c)
    <float[2,2,3,3] w = {WEIGHTS}> {
        [split] a, b = Split <axis = 1, num_outputs = 2> (x)
        [conv] c = Conv <pads = [1, 1, 1, 1]> (a, w)
        [add] d = Add (c, b)
        [concat] y = Concat <axis = 1> (c, d)
    }
"""
# Nothing connects the two halves but the constant.
TWO_INPUTS = """
    g (float[1,2,8,8] x, float[1,2,8,8] z) => (float[1,2,8,8] y, float[1,2,8,8] v)
    <float[2,2,3,3] w = {WEIGHTS}> {
        [conv_x] a = Conv <pads = [1, 1, 1, 1]> (x, w)
        [conv_z] b = Conv <pads = [1, 1, 1, 1]> (z, w)
        [relu_x] y = Relu (a)
        [relu_z] v = Relu (b)
    }
"""
# Shapes are computed: what crosses may be a shape, and constant folding may take nodes away.
WITH_SHAPES = """
    g (float[n,4,8,8] x) => (float[n,m] y)
    <int64[1] minus = {-1}, int64[1] zero = {0}> {
        [shape] s = Shape (x)
        [gather] first = Gather (s, zero)
        [target] t = Concat <axis = 0> (first, minus)
        [relu] r = Relu (x)
        [reshape] f = Reshape (r, t)
        [exp] y = Exp (f)
    }
"""
TOPOLOGIES = {
    "split-conv-concat": SPLIT_CONV_CONCAT,
    "nested": NESTED_SPLIT_CONV_CONCAT,
    "many outputs": MANY_OUTPUTS,
    "two inputs": TWO_INPUTS,
    "shapes": WITH_SHAPES,
}


def proto(text: str) -> onnx.ModelProto:
    weights = ", ".join(f"{value:.3f}" for value in np.linspace(-1, 1, 36))
    return parser.parse_model(HEADER + text.replace("WEIGHTS", weights))


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    source = np.random.default_rng(7)
    return {
        item.name: source.standard_normal(
            [dim.dim_value or 3 for dim in item.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for item in model.graph.input
    }


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif expected is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, expected)


def check(
    core: aioinfer.Core, model: onnx.ModelProto, apart: set[str], inputs: Mapping[str, Any]
) -> aioinfer.ExecutableNetwork:
    """Put some nodes on the second device and compare; return the network, which is closed."""
    affinity = {
        node.name: f"REFERENCE.{int(node.name in apart)}"
        for node in core.read_model(model).graph.nodes
    }
    config = {"AFFINITY": affinity}
    with core.load_network(model, "HETERO:REFERENCE.0,REFERENCE.1", config) as network:
        results = network.create_infer_request().infer_sync(dict(inputs))
    for name, expected in on_one_device(core, model, inputs).items():
        assert_same(results[name], expected)
    return network


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_node_alone_on_another_device(core: aioinfer.Core, name: str) -> None:
    model = proto(TOPOLOGIES[name])
    for node in model.graph.node:
        check(core, model, {node.name}, inputs_of(model))


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("fifths", [1, 2, 3, 4, 5])
def test_random_nodes_on_another_device(core: aioinfer.Core, name: str, fifths: int) -> None:
    model = proto(TOPOLOGIES[name])
    source = random.Random(f"{name} {fifths}")
    for _ in range(3):
        apart = {node.name for node in model.graph.node if source.random() < fifths / 5}
        check(core, model, apart, inputs_of(model))


def test_a_sequence_crosses(core: aioinfer.Core) -> None:
    model = proto("""
        g (float[4,3] x) => (float[4,3] y, seq(float[2,3]) parts)
        <int64 pieces = {2}> {
            [split] parts = SplitToSequence <axis = 0> (x, pieces)
            [join] y = ConcatFromSequence <axis = 0> (parts)
        }
    """)
    network = check(core, model, {"join"}, inputs_of(model))
    assert [str(cut.type) for cut in network.partition.cuts] == ["seq(float32[?,?])"]
    assert [cut.bytes for cut in network.partition.cuts] == [None]


def test_an_optional_crosses_with_and_without_content(core: aioinfer.Core) -> None:
    model = proto("""
        g (optional(float[3]) given) => (bool has, float[3] y)
        <float[3] zeros = {0, 0, 0}> {
            [pass] o = Identity (given)
            [ask] has = OptionalHasElement (o)
            [branch] y = If (has) <
                then_branch = t () => (float[3] a) { [get] a = OptionalGetElement (o) },
                else_branch = e () => (float[3] b) { [none] b = Identity (zeros) }
            >
        }
    """)
    for content in (np.array([1, 2, 3], np.float32), None):
        network = check(core, model, {"ask"}, {"given": content})
    assert network.partition.cuts


def test_strings_cross(core: aioinfer.Core) -> None:
    model = proto("""
        g (string[n] x, string[n] z) => (string[n] y)
        {
            [join] a = StringConcat (x, z)
            [normalize] y = StringNormalizer <case_change_action = "UPPER"> (a)
        }
    """)
    words = {"x": np.array(["ab", "c"], object), "z": np.array(["é", ""], object)}
    network = check(core, model, {"normalize"}, words)
    assert [cut.value for cut in network.partition.cuts] == ["a"]


def test_values_that_a_loop_captures_cross(core: aioinfer.Core) -> None:
    model = proto("""
        g (float[3] x) => (float[3] y, float[steps, 3] all)
        <int64 count = {4}, bool go = {1}, float[3] one = {1, 1, 1}> {
            [relu] a = Relu (x)
            [loop] y, all = Loop (count, go, x) <
                body = b (int64 i, bool c, float[3] carried)
                    => (bool c_out, float[3] next, float[3] seen) {
                    [keep] c_out = Identity (c)
                    [step] next = Add (carried, a)
                    [scale] seen = Mul (next, one)
                }
            >
            [after] unused = Neg (a)
        }
    """)
    network = check(core, model, {"loop"}, inputs_of(model))
    assert [(cut.value, cut.source, cut.target) for cut in network.partition.cuts] == [("a", 0, 1)]
