"""Small models for the tests of passes: written as ONNX text, printed, and evaluated by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from aioinfer.runtime.graph import Graph, Model, TensorType, Value
from aioinfer.runtime.operators import make_operator
from aioinfer.runtime.passes import GraphPatch, Pass


def node_lines(graph: Graph | Model) -> list[str]:
    """Print the nodes alone, without types: `y = Relu(x)  # Relu_0`."""
    graph = graph.graph if isinstance(graph, Model) else graph
    lines = []
    for node in graph.nodes:
        outputs = ", ".join(value.name for value in node.outputs)
        inputs = ", ".join("_" if value is None else value.name for value in node.inputs)
        origin = f"  # {' '.join(node.fused_from) or '-'}"
        lines.append(f"{outputs} = {node.op}({inputs}){origin}")
    return lines


def constants(model: Model) -> dict[str, Any]:
    """List the named constants of the main graph as nested lists."""
    return {name: value.constant.tolist() for name, value in model.graph.initializers.items()}


def value_of(model: Model, name: str) -> Value:
    """Find a value of the main graph by its name."""
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values()]
    values += [value for node in graph.nodes for value in node.outputs]
    return next(value for value in values if value.name == name)


def shape_of(value: Value) -> Any:
    return value.type.shape if isinstance(value.type, TensorType) else None


def evaluate(model: Model, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a model without control flow, node by node."""
    known: dict[Value | None, Any] = {None: None}
    known.update({value: inputs[value.name] for value in model.inputs})
    known.update({value: value.constant for value in model.graph.initializers.values()})
    for node in model.graph.nodes:
        operator = make_operator(node, model.opsets)
        results = operator(*[known[value] for value in node.inputs])
        known.update(zip(node.outputs, results, strict=True))
    return {value.name: known[value] for value in model.outputs}


class Rewrite(Pass):
    """A pass made of a function, for tests of the framework."""

    name = "rewrite"

    def __init__(self, find: Callable[[Graph], Iterator[GraphPatch]]) -> None:
        self._find = find

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        return self._find(graph)
