"""Models in ONNX's text syntax, for the tests of ONNXRUNTIME."""

import onnx
from onnx import parser

from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader import read_model


def proto_of(text: str, opset: int = 21) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def model_of(text: str, opset: int = 21) -> Model:
    return read_model(proto_of(text, opset))


ENDLESS = """g (float[1] x) => (float[1] y) {
    count = Constant <value_int = 1000000000000> ()
    go_on = Constant <value = bool {1}> ()
    y = Loop (count, go_on, x) <body = b (int64 i, bool going, float[1] a) => (bool go, float[1] c)
        { go = Identity (going) c = Add (a, x) }>
}"""
"""A model that runs for weeks unless it is told to end."""
