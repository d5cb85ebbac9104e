"""A BatchNormalization that was folded into no neighbour as a multiplication and an addition.

As elementwise nodes they join what is behind them, and work on maps with channels first or last.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.folding.batch_normalization_folding import affine_of, is_inference
from ....runtime.passes.rewriting.matching import dtype_of, static_shape
from ...accelerator.elementwise.c_types import FLOATS

__all__ = ["BatchNormalizationSteps"]


class BatchNormalizationSteps(Pass):
    """Write one that infers, with constants for its statistics, as Mul and Add."""

    name = "batch normalization as steps"
    enters_bodies = False  # control flow runs on other devices

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes_of("BatchNormalization"):
            patch = _patch(node) if is_inference(node) else None
            if patch is not None:
                yield patch


def _patch(node: Node) -> GraphPatch | None:
    source, old = node.input_at(0), node.outputs[0]
    shape, dtype = static_shape(source), dtype_of(source)
    if source is None or shape is None or len(shape) < 2 or dtype not in FLOATS:
        return None
    affine = affine_of(node, shape[1])
    if affine is None or dtype is None:
        return None
    operands = [np.asarray(item, dtype.numpy) for item in (affine.scale, affine.shift)]
    if not all(np.isfinite(item.astype(np.float64)).all() for item in operands):
        return None
    patch = GraphPatch(f"write BatchNormalization {node.name!r} as Mul and Add").remove(node)
    scale, shift = (
        _constant(patch, f"{node.name}_{name}", item.reshape(-1, *[1] * (len(shape) - 2)))
        for name, item in zip(("scale", "shift"), operands, strict=True)
    )
    scaled, made = Value(f"{old.name}_scaled", old.type), Value(old.name, old.type)
    product = Node("Mul", (source, scale), (scaled,), name=f"{node.name}_scale")
    total = Node("Add", (scaled, shift), (made,), name=node.name)
    return patch.add(product, before=node).add(total, before=node).replace(old, made)


def _constant(patch: GraphPatch, name: str, array: np.ndarray) -> Value:
    array.flags.writeable = False
    made = Value(name, TensorType(DType.of(array.dtype), array.shape), array)
    patch.add_constant(made)
    return made
