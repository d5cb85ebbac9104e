"""What a file says of its values' types: believed where inference cannot tell better."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnx.defs
import pytest

import aioinfer
from aioinfer.runtime.graph import Graph
from aioinfer.runtime.onnx_reader.onnx_models import read_any_model as read_model
from onnx_text import parse_proto

NEWEST = onnx.defs.onnx_opset_version()
parse_newest = functools.partial(parse_proto, opset=NEWEST)


def types_in(graph: Graph) -> dict[str, str]:
    found = {}
    for node in graph.nodes:
        found.update({value.name: str(value.type) for value in node.outputs})
        for body in node.bodies():
            found.update(types_in(body))
            found.update({value.name: str(value.type) for value in body.inputs})
    return found


def types_of(proto: onnx.ModelProto) -> dict[str, str]:
    return types_in(read_model(proto).graph)


STALE = "g (float[7,4] x) => (int64[2] s, float[1,4] y) <float[1,4] a> {{ {} }}"


@pytest.mark.parametrize("opset", [9, 13, NEWEST])
def test_a_stale_type_is_replaced_and_nothing_is_computed_with_it(opset: int) -> None:
    proto = parse_proto(STALE.format("a = Relu (x) s = Shape (a) y = Neg (a)"), opset)
    assert types_of(proto) == {"a": "float32[7,4]", "s": "int64[2]", "y": "float32[7,4]"}
    with aioinfer.Core() as core, core.load_network(proto, "REFERENCE") as network:
        outputs = network.create_infer_request().infer_sync(np.ones((7, 4), np.float32))
    np.testing.assert_array_equal(outputs["s"], [7, 4])
    assert outputs["y"].shape == (7, 4)


@pytest.mark.parametrize(
    ("declared", "inferred"),
    [
        ("double[7,4] a", "float32[7,4]"),
        ("float[4] a", "float32[7,4]"),
        ("float[n,4] a", "float32[7,4]"),
        ("float a", "float32[7,4]"),
    ],
)
def test_every_part_of_a_type_may_be_stale(declared: str, inferred: str) -> None:
    proto = parse_newest(f"g (float[7,4] x) => (y) <{declared}> {{ a = Relu (x) y = Neg (a) }}")
    assert types_of(proto) == {"a": inferred, "y": inferred}


def test_a_length_that_the_inputs_leave_open_is_not_believed_of_an_inner_value() -> None:
    proto = parse_newest(
        "g (float[n,4] x) => (float[1,4] y) <float[1,4] a> { a = Relu (x) y = Neg (a) }"
    )
    assert types_of(proto) == {"a": "float32[n,4]", "y": "float32[n,4]"}


def test_of_an_output_that_inference_leaves_open_the_file_gives_the_symbols_alone() -> None:
    proto = parse_newest(
        "g (float[n] x, int64[2] shape) => (int64[1, count] where, float[rows, 10] y) "
        "<int64[1, 5] w> { w = NonZero (x) where = Identity (w) y = Reshape (x, shape) }"
    )
    assert types_of(proto) == {
        "w": "int64[1,?]",
        "where": "int64[1,count]",
        "y": "float32[rows,?]",
    }


@pytest.mark.parametrize("made", ["y = NonZero (x)", "w = NonZero (x) y = Identity (w)"])
@pytest.mark.parametrize("length", [5, 2**62])
def test_a_declared_length_that_is_wrong_refuses_neither_model_nor_memory(
    made: str, length: int
) -> None:
    proto = parse_newest(f"g (float[n] x) => (int64[1, {length}] y) {{ {made} }}")
    with aioinfer.Core() as core, core.load_network(proto, "REFERENCE") as network:
        request = network.create_infer_request()
        bound = np.zeros((1, 3), np.int64)
        request.set_tensor("y", bound)
        request.infer_sync(np.array([1, 0, 2, 3], np.float32))
    np.testing.assert_array_equal(bound, [[0, 2, 3]])


def test_an_output_is_called_by_the_files_symbols() -> None:
    proto = parse_newest("g (float[n,4] x) => (float[batch,4] y) { y = Relu (x) }")
    assert types_of(proto) == {"y": "float32[batch,4]"}


def test_other_operators_keep_what_the_file_says_of_them() -> None:
    proto = parse_newest(
        "g (float[7] x) => (float[m] y) <float[3] a, float[9] b> "
        "{ a = com.acme.Swirl (x) b = Neg (a) y = com.acme.Swirl (b) }"
    )
    assert types_of(proto) == {"a": "float32[3]", "b": "float32[3]", "y": "float32[m]"}


def test_of_a_value_that_inference_knows_nothing_of_only_the_element_type_is_believed() -> None:
    proto = parse_newest(
        "g (float[7] x) => (float[m] y) <double[3] b> { a = com.acme.Swirl (x) b = Neg (a) "
        "y = com.acme.Swirl (b) }"
    )
    assert types_of(proto) == {"a": "None", "b": "float64[...]", "y": "float32[m]"}


def test_bodies_are_weighed_too() -> None:
    proto = parse_newest(
        """g (float[7] x, int64 trips, bool go) => (float[1] y) {
            y = Loop (trips, go, x) <body = b (int64 i, bool c, float[1] s) => (bool d, float[1] t)
                <float[2] u> { d = Identity (c) u = Relu (s) t = Neg (u) }>
        }"""
    )
    types = types_of(proto)
    assert types["y"] == types["u"] == types["s"] == types["t"] == "float32[7]"


def test_sequences_keep_their_element_type() -> None:
    proto = parse_newest(
        "g (float[7] x) => (seq(float[1]) y) <seq(double[3]) s> "
        "{ s = SequenceConstruct (x, x) y = Identity (s) }"
    )
    types = types_of(proto)
    assert types["s"].startswith("seq(float32")
    assert types["y"].startswith("seq(float32")
