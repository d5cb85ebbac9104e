"""Models written in ONNX's text format: a graph is enough, the header is put before it."""

import textwrap

import onnx.parser

from aioinfer.runtime.graph import Model
from aioinfer.runtime.onnx_reader import read_model

__all__ = ["parse", "parse_proto"]


def parse_proto(text: str, opset: int = 21, *, ir_version: int = 10) -> onnx.ModelProto:
    """Make the model of a graph, which may use the domain com.acme."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.acme" : 1]>'
    return onnx.parser.parse_model(header + textwrap.dedent(text))


def parse(text: str, opset: int = 21) -> Model:
    """Read a graph as Core.read_model reads its model."""
    return read_model(parse_proto(text, opset))
