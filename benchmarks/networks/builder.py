"""Writes ONNX graphs node by node, with random weights from a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

OPSET = 17
IR_VERSION = 8

Floats = npt.NDArray[np.float32]
Dim = int | str


class Builder:
    """A graph in the making; each method adds nodes and returns the name of what they make."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.chance = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []

    def input(self, name: str, shape: Sequence[Dim], dtype: int = onnx.TensorProto.FLOAT) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, value: str, name: str, shape: Sequence[Dim]) -> None:
        """Make a value an output under that name; it is float32."""
        self._nodes.append(helper.make_node("Identity", [value], [name], f"to_{name}"))
        kind = onnx.TensorProto.FLOAT
        self._outputs.append(helper.make_tensor_value_info(name, kind, list(shape)))

    def constant(self, array: Any, dtype: type[Any] = np.float32) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def nodes(self, op: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add a node with a number of outputs."""
        name = f"{op}_{len(self._nodes)}"
        outputs = [f"{name}_output_{index}" for index in range(count)]
        self._nodes.append(helper.make_node(op, inputs, outputs, name, **attributes))
        return outputs

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.nodes(op, inputs, 1, **attributes)[0]

    def normal(self, shape: Sequence[int], deviation: float = 1.0) -> Floats:
        return (self.chance.standard_normal(shape, np.float32) * np.float32(deviation)).astype(
            np.float32
        )

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            _without_last_identities(self._nodes),
            self.name,
            self._inputs,
            self._outputs,
            self._constants,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="aioinfer-benchmarks"
        )


def _without_last_identities(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Give each output the node that makes its value, under the output's own name."""
    renamed = {node.input[0]: node.output[0] for node in nodes if node.op_type == "Identity"}
    kept = []
    for node in nodes:
        if node.op_type != "Identity":
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [renamed.get(name, name) for name in node.input]
            copy.output[:] = [renamed.get(name, name) for name in node.output]
            kept.append(copy)
    return kept
