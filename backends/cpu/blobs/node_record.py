"""Nodes that functions of Python compute in a blob, from which these are made again.

Nothing of a function is written, but the node that it computes: an operator of ONNX with its
attributes, or an operator that the importing Core has an extension for. What an operator computes
in a run is bounded by the memory of its operands: their shapes have to be those of its type rule,
so none is taken whose result has a length that only the content of a run's arrays tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....errors import BlobError, NotSupportedError
from ....runtime.blobs.graph_record import read_model_record, write_model_record
from ....runtime.blobs.reader import Blob
from ....runtime.blobs.tensors_record import damaged
from ....runtime.blobs.writer import BlobWriter
from ....runtime.graph import Graph, Model, Node, TensorType, Value
from ....runtime.lowering.user_kernels import used_outputs
from ....runtime.lowering.written_states import Places, rows_function
from ....runtime.operators import OperatorError
from ....runtime.type_inference import infer_graph_types
from ..kernels.numpy_operators import node_function
from ..kernels.user_kernels import user_function
from ..plans.operand_layout import Operand
from ..plans.steps import NumpyStep

__all__ = ["BindKernels", "NodesReader", "NodesWriter", "find_other_shape"]

BindKernels = Callable[[Model], Model]
"""Ties a model's nodes to the kernels that users have brought."""

_FRAMES = "nodes"
_MOST_ELEMENTS = 64
"""Of constants that a type rule may look into: lists of lengths, axes, counts."""


class NodesWriter:
    """Collects the nodes of steps, each as one of a graph that has nothing else."""

    def __init__(self) -> None:
        self._graph = Graph("nodes")
        self._count = 0

    def add(self, step: NumpyStep) -> int:
        """Return the number of a step's node; NotSupportedError for a function without one."""
        node, origin = step.node, step.origin
        if node is None:
            raise NotSupportedError(
                f"{origin.op} (node {origin.name!r}) is computed by a function of Python, which no "
                f"blob can hold; load the network with EXPORTABLE=True",
                node=origin.name,
                op=origin.op,
            )
        number, self._count = self._count, self._count + 1
        used = {index for index, _ in used_outputs(node)}
        inputs = [self._value(f"{number} in {i}", known) for i, known in enumerate(node.inputs)]
        outputs = [self._value(f"{number} out {i}", known) for i, known in enumerate(node.outputs)]
        copied = Node(
            node.op_type,
            inputs,
            [value for value in outputs if value is not None],
            dict(node.attributes),
            name=node.name,
            domain=node.domain,
        )
        self._graph.inputs += [value for value in inputs if value is not None]
        self._graph.append(copied)
        self._graph.outputs = [
            *self._graph.outputs,
            *(value for index, value in enumerate(copied.outputs) if index in used),
        ]
        return number

    def finish(self, blob: BlobWriter, opsets: Mapping[str, int]) -> None:
        """Add what was collected, if there is any."""
        if self._count:
            write_model_record(blob.under(_FRAMES), Model(self._graph, dict(opsets)))

    @staticmethod
    def _value(name: str, known: Value | None) -> Value | None:
        if known is None:
            return None
        kind = known.type
        return Value(name, TensorType(kind.dtype) if isinstance(kind, TensorType) else None)


class NodesReader:
    """Makes the functions of nodes again; ``bind`` ties those of users to their kernels."""

    def __init__(self, blob: Blob, bind: BindKernels) -> None:
        self._nodes: Sequence[Node] = ()
        self._opsets: Mapping[str, int] = {}
        if f"{_FRAMES}/model" in blob:
            model = bind(read_model_record(blob.under(_FRAMES)))
            self._nodes, self._opsets = tuple(model.graph.nodes), model.opsets

    def function(self, number: Any, places: Places | None) -> tuple[Node, Callable[..., None]]:
        """Return a node and what computes it; raises BlobError for what no step computes."""
        if type(number) is not int or not 0 <= number < len(self._nodes):
            raise damaged(f"it has no node {number!r:.20}")
        node = self._nodes[number]
        if node.user_kernel is not None:
            return node, user_function(node)
        if places is not None:
            if node.domain or node.op_type not in ("ScatterND", "TensorScatter"):
                raise damaged(f"{node.op} writes into no state")
            return node, rows_function(node, places)
        try:
            return node, node_function(node, self._opsets)
        except OperatorError as error:
            raise BlobError(
                f"nothing here computes {node.op} (node {node.name!r}) of the blob: "
                f"{error.reason}; add its extension with core.add_extension before the import"
            ) from error

    @staticmethod
    def operand_counts(node: Node, places: Places | None) -> tuple[int, int]:
        """Return how many operands a node's function reads, and how many it fills."""
        if places is not None:
            return sum(value is not None for value in node.inputs[1:]), 1
        written = used_outputs(node) if node.user_kernel is not None else node.outputs
        return sum(value is not None for value in node.inputs), len(written)


def find_other_shape(node: Node, reads: Sequence[Operand], writes: Sequence[Operand]) -> str | None:
    """Return why an operator of ONNX does not compute results of these shapes, or None.

    ``find_array_overrun`` has accepted the operands. Raises what a type rule does.
    """
    given = iter(reads)
    inputs = [None if value is None else _typed(next(given)) for value in node.inputs]
    outputs = [Value(value.name) for value in node.outputs]
    graph = Graph("node", [value for value in inputs if value is not None])
    graph.append(
        Node(
            node.op_type, inputs, outputs, dict(node.attributes), name=node.name, domain=node.domain
        )
    )
    if not infer_graph_types(graph):
        return "what is in its inputs decides on the shape of its result"
    for made, operand in zip(outputs, writes, strict=True):
        assert isinstance(made.type, TensorType)
        if made.type.shape != operand.shape:
            return f"its result is {made.type}, and was to be {operand.layout}"
    return None


def _typed(operand: Operand) -> Value:
    """Make a value of an operand's type, with its content where that is a small constant."""
    layout, array = operand.layout, operand.buffer.array
    content = None
    if array is not None and 0 < layout.count <= _MOST_ELEMENTS:
        assert layout.strides is not None
        item = layout.dtype.item_bytes
        memory = array.reshape(-1).view(np.uint8)
        strides = [step * item for step in layout.strides]
        content = np.ndarray(
            layout.shape, layout.dtype.numpy, memory, operand.offset_bytes, strides
        )
    return Value("", TensorType(layout.dtype, layout.shape), content)
