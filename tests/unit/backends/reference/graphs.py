"""Small graphs for the tests of the REFERENCE device."""

from onnx import parser

from aioinfer.backends.reference.execution import Steps, compile_steps
from aioinfer.backends.reference.finder import KernelFinder
from aioinfer.runtime.graph import Graph, Model
from aioinfer.runtime.onnx_reader import read_model

OPSETS = {"": 26}


def model_of(text: str) -> Model:
    """Read a model in ONNX's text syntax; the header is put before it."""
    return read_model(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}'))


def compile_text(text: str) -> Steps:
    model = model_of(text)
    return compile_steps(model.graph, KernelFinder(model.opsets))


def compile_graph(graph: Graph, extensions=None) -> Steps:
    return compile_steps(graph, KernelFinder(OPSETS, extensions))
