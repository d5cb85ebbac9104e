"""Nodes that are added around one of the file, as protos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from ..origins import Origins

__all__ = ["NodeWriter"]


class NodeWriter:
    """Adds nodes around one, ``node``, under names of their own that share its origin.

    ``taken`` are the names of values in the graph, and become more. Of what it changes, ``before``
    and ``after`` are for the caller to put around the node.
    """

    def __init__(self, node: onnx.NodeProto, origins: Origins, taken: set[str]) -> None:
        self.node = node
        self.before: list[onnx.NodeProto] = []
        self.after: list[onnx.NodeProto] = []
        self._origins, self._taken = origins, taken

    def put_before(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one output in front; return the output."""
        output = self.free_name(op_type)
        self.before.append(self._made(op_type, inputs, output, attributes))
        return output

    def put_after(self, op_type: str, *inputs: str, output: str, **attributes: Any) -> None:
        """Add a node behind, which makes this output."""
        self.after.append(self._made(op_type, inputs, output, attributes))

    def constant(self, value: object, dtype: type[np.generic]) -> str:
        """Add a constant in front; return its name."""
        tensor = onnx.numpy_helper.from_array(np.asarray(value, dtype))
        return self.put_before("Constant", value=tensor)

    def become(self, op_type: str, *inputs: str, **attributes: Any) -> None:
        """Make another operator of the node, which keeps its name and its outputs."""
        del self.node.input[:], self.node.attribute[:]
        self.node.op_type, self.node.domain = op_type, ""
        self.node.input.extend(inputs)
        self.set_attributes(**attributes)

    def set_attributes(self, **values: Any) -> None:
        """Give the node these attributes, and leave its others as they are."""
        kept = [item for item in self.node.attribute if item.name not in values]
        del self.node.attribute[:]
        self.node.attribute.extend(kept)
        self.node.attribute.extend(
            onnx.helper.make_attribute(name, value) for name, value in values.items()
        )

    def free_name(self, label: str) -> str:
        """Return a name for a value of the graph that no other has."""
        name = f"{self.node.name}/{label}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _made(
        self, op_type: str, inputs: Sequence[str], output: str, attributes: dict[str, Any]
    ) -> onnx.NodeProto:
        name = self._origins.claim_like(f"{self.node.name}/{op_type}")
        self._origins[name] = self._origins[self.node.name]
        return onnx.helper.make_node(op_type, inputs, [output], name, **attributes)
