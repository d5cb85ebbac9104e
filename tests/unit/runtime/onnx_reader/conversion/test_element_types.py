"""Element types that an operator cannot take are refused on every device, whatever the ranks."""

from __future__ import annotations

import onnx
import onnx.defs
import pytest

import aioinfer
from aioinfer.errors import ModelError
from aioinfer.runtime.onnx_reader import read_model
from onnx_text import parse_proto

NEWEST = onnx.defs.onnx_opset_version()


def unranked(text: str) -> onnx.ModelProto:
    """Parse a model, of whose inputs and outputs only the element types are known."""
    proto = parse_proto(text, opset=NEWEST)
    for info in (*proto.graph.input, *proto.graph.output):
        info.type.tensor_type.ClearField("shape")
    return proto


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "g (float16[1] x, float[1] w) => (float[1] y) { [n] y = MatMul (x, w) }",
            "inputs 0 and 1 have to be of one element type, and are float16 and float32",
        ),
        (
            "g (float16[1] x) => (float[1] y) "
            "{ e = Constant <value: tensor = float {1.0}> () [n] y = Add (x, e) }",
            "inputs 0 and 1 have to be of one element type, and are float16 and float32",
        ),
        (
            "g (float[1] x, float[1] v, double[1] w) => (float[1] y) "
            "{ [n] y = Concat <axis = 0> (x, v, w) }",
            "inputs 0 and 2 have to be of one element type, and are float32 and float64",
        ),
        (
            "g (float[1] x, int32[1] axes) => (float[1] y) { [n] y = Unsqueeze (x, axes) }",
            "input 1 is int32, and has to be int64",
        ),
        (
            "g (float[1] x, double[1] k) => (float[1] y) { z = Relu (x) [n] y = Resize (z, , k) }",
            "input 2 is float64, and has to be float32",
        ),
    ],
)
def test_element_types_that_do_not_go_together_are_refused_where_ranks_are_unknown(
    text: str, why: str
) -> None:
    proto = unranked(text)
    with pytest.raises(ModelError, match=f"node 'n'.* cannot be computed: {why}"):
        read_model(proto)
    with aioinfer.Core() as core:
        for device in ("REFERENCE", "CPU"):
            with pytest.raises(ModelError, match=why):
                core.load_network(proto, device)


@pytest.mark.parametrize(
    "text",
    [
        "g (float16[1] x, float[1] e) => (float16[1] y) { y = Pow (x, e) }",
        "g (int64[1] n, float[1] w) => (float[1] y) { y = Gather (w, n) }",
        "g (bool[1] c, float[1] v, float[1] w) => (float[1] y) { y = Where (c, v, w) }",
        "g (float[1] x, int32[1] e) => (float[1] y) { y = com.acme.Swirl (x, e) }",
    ],
)
def test_element_types_of_several_variables_may_differ(text: str) -> None:
    assert read_model(unranked(text)).graph.nodes
