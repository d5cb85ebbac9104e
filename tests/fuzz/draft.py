"""A model while it is made: nodes, and parameters that are not yet initializers or inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TypeProto, helper, numpy_helper

__all__ = ["Draft", "elem_type_of", "tensor_type"]

Shape = tuple[int | str | None, ...] | None


@dataclass
class Draft:
    """What a case is made of; mutations change it in place.

    ``parameters`` are all values that are given, by name: those in ``constants`` become
    initializers, the others inputs. ``declared`` overrides the type that an input or output is
    declared with; ``hints`` are declared types of values in between.
    """

    nodes: list[NodeProto]
    parameters: dict[str, Any]
    outputs: list[str]
    types: dict[str, TypeProto]
    opsets: dict[str, int]
    ir_version: int
    constants: set[str] = field(default_factory=set)
    declared: dict[str, TypeProto | None] = field(default_factory=dict)
    hints: dict[str, TypeProto] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    """What the valid model gives, as far as that is known; for shapes only."""
    states: Mapping[str, str] = field(default_factory=dict)
    """Inputs that the request keeps, with the outputs that they are taken from."""
    notes: list[str] = field(default_factory=list)
    """What was done to it, in words."""
    has_extremes: bool = False
    """True if floats are so far out that results depend on the order of operations."""

    def tensors(self) -> list[str]:
        """Name the parameters that are arrays."""
        return [name for name, value in self.parameters.items() if isinstance(value, np.ndarray)]

    def feeds(self, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Give what comes with a run."""
        given = self.parameters if parameters is None else parameters
        kept = {*self.constants, *self.states}
        return {name: value for name, value in given.items() if name not in kept}

    def model(self) -> ModelProto:
        """Write the model down, however wrong it is."""
        model = ModelProto(ir_version=self.ir_version, producer_name="fuzz")
        for domain, version in self.opsets.items():
            model.opset_import.add(domain=domain, version=version)
        graph = model.graph
        graph.name = "drawn"
        graph.node.extend(self.nodes)
        for name, value in self.parameters.items():
            if name in self.constants:
                graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
                graph.initializer[-1].dims[:] = value.shape  # of a scalar, too
            else:
                self._declare(graph.input.add(name=name), self._input_type(name, value))
        for name in self.outputs:
            self._declare(graph.output.add(name=name), self.types.get(name))
        for name, kind in self.hints.items():
            graph.value_info.add(name=name, type=kind)
        return model

    def _declare(self, info: Any, kind: TypeProto | None) -> None:
        kind = self.declared.get(info.name, kind)
        if kind is not None:
            info.type.CopyFrom(kind)

    def _input_type(self, name: str, value: Any) -> TypeProto | None:
        if not isinstance(value, np.ndarray):
            return self.types.get(name)
        return tensor_type(elem_type_of(value), value.shape)


def elem_type_of(array: np.ndarray[Any, Any]) -> int:
    """Give onnx's number of an element type; strings are objects."""
    return 8 if array.dtype.kind in "OUS" else int(helper.np_dtype_to_tensor_dtype(array.dtype))


def tensor_type(elem_type: int, shape: Shape) -> TypeProto:
    """Declare a tensor; the shape may be None, and dimensions may be names or None."""
    kind = TypeProto()
    kind.tensor_type.elem_type = elem_type
    if shape is not None:
        kind.tensor_type.shape.SetInParent()
        for length in shape:
            dim = kind.tensor_type.shape.dim.add()
            if isinstance(length, str):
                dim.dim_param = length
            elif length is not None:
                dim.dim_value = length
    return kind
