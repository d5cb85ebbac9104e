"""Small graphs for the tests of the REFERENCE device."""

from aioinfer.backends.reference.finder import KernelFinder
from aioinfer.runtime.graph import Graph
from aioinfer.runtime.interpretation.steps import Steps, compile_steps
from onnx_text import parse

OPSETS = {"": 26}


def compile_text(text: str) -> Steps:
    model = parse(text)
    return compile_steps(model.graph, KernelFinder(model.opsets))


def compile_graph(graph: Graph, extensions=None) -> Steps:
    return compile_steps(graph, KernelFinder(OPSETS, extensions))
