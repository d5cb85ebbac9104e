"""What a decomposition makes: nodes and constants that are in no graph yet, with their types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ..graph import Attribute, DType, Node, Shape, TensorType, Value

__all__ = ["Composition", "CompositionError", "Infer"]

Array = np.ndarray[Any, Any]

Infer = Callable[[Node], Sequence[TensorType | None] | None]
"""Gives the types of a node's outputs, as far as it knows."""


class CompositionError(Exception):
    """A node cannot be written with ONNX's operators; the text says why, without naming it."""


class Composition:
    """Collects what one node is made of; ``inputs`` are its own, or values that stand for them.

    ``whole_ops`` are operators of ONNX that the device computes as a whole: where one fits, it is
    used, and not what it is made of. Nodes are made in topological order, and each gets its types
    by ``infer`` at once, so that a decomposition may look at those of what it has made. Not
    thread-safe; for one use.
    """

    def __init__(
        self,
        node: Node,
        inputs: Sequence[Value | None],
        infer: Infer,
        whole_ops: Collection[str] = (),
    ) -> None:
        self.node, self.inputs, self.whole_ops = node, tuple(inputs), frozenset(whole_ops)
        self._infer = infer
        self.nodes: list[Node] = []
        self.constants: list[Value] = []

    def with_inputs(self, inputs: Sequence[Value | None]) -> Composition:
        """Return a view that adds to this composition, for a decomposition of other inputs."""
        other = Composition(self.node, inputs, self._infer, self.whole_ops)
        other.nodes, other.constants = self.nodes, self.constants
        return other

    def optional(self, index: int) -> Value | None:
        """Return an input; None for one that is not given."""
        return self.inputs[index] if index < len(self.inputs) else None

    def given(self, index: int) -> Value:
        """Return an input; raises CompositionError for one that is not given."""
        found = self.optional(index)
        if found is None:
            raise CompositionError(f"input {index} is not given")
        return found

    def is_used(self, index: int) -> bool:
        """True if something reads an output of the node."""
        outputs = self.node.outputs
        return index < len(outputs) and bool(outputs[index].uses or outputs[index].is_graph_output)

    def add(self, op_type: str, *inputs: Value | None, **attributes: Attribute) -> Value:
        """Add a node of ONNX's own domain and return its one output."""
        return self.add_many(op_type, 1, *inputs, **attributes)[0]

    def add_many(
        self,
        op_type: str,
        count: int,
        *inputs: Value | None,
        domain: str = "",
        **attributes: Attribute,
    ) -> tuple[Value, ...]:
        """Add a node with several outputs; attributes that are None are left out."""
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        name = f"{self.node.name}/{op_type}"
        outputs = tuple(Value(f"{name}_{index}" if index else name) for index in range(count))
        kept = {key: item for key, item in attributes.items() if item is not None}
        made = Node(op_type, inputs, outputs, kept, name=name, domain=domain)
        self.nodes.append(made)
        for value, known in zip(outputs, self._infer(made) or (), strict=False):
            value.type = known
        return outputs

    def constant(self, array: Array, label: str = "constant") -> Value:
        """Add a constant; the array is kept and must not be written any more."""
        known = TensorType(DType.of(array.dtype), array.shape)
        made = Value(f"{self.node.name}/{label}", known, array)
        self.constants.append(made)
        return made

    def integers(self, *numbers: int) -> Value:
        """Add a constant list of int64."""
        return self.constant(np.array(numbers, np.int64), "integers")

    def scalar(self, number: int) -> Value:
        """Add a constant int64 without axes."""
        return self.constant(np.array(number, np.int64), "scalar")

    def number(self, number: float, like: Value) -> Value:
        """Add a constant scalar of the element type of another value."""
        return self.constant(np.array(number, self.dtype(like).numpy), "number")

    def dtype(self, value: Value) -> DType:
        """Return an element type; raises CompositionError where it is not known."""
        if not isinstance(value.type, TensorType):
            raise CompositionError(f"the type of {value.name!r} is not known")
        return value.type.dtype

    def shape(self, value: Value) -> Shape:
        """Return lengths as far as they are known; CompositionError for an unknown rank."""
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            raise CompositionError(f"the rank of {value.name!r} is not known")
        return value.type.shape

    def rank(self, value: Value) -> int:
        """Return how many axes a value has; CompositionError where that is not known."""
        return len(self.shape(value))

    def discard(self) -> None:
        """Detach the nodes from the values that they use."""
        for made in self.nodes:
            made.detach()
