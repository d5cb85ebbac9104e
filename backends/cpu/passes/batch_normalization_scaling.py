"""A BatchNormalization that follows nothing it could be folded into, as Mul and Add."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.folding.batch_normalization_folding import affine_of, is_inference
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.folding.weight_folding import Affine
from ....runtime.passes.rewriting.matching import are_float32, rank_of

__all__ = ["BatchNormalizationScaling"]


class BatchNormalizationScaling(Pass):
    """Write it as Mul and Add of constants, which join the elementwise nodes around them.

    DenseNet's stand before the activation and the Conv. Constants come from ``cache``.
    """

    name = "batch normalization scaling"
    wanted_ops = frozenset({"BatchNormalization"})

    def __init__(self, cache: ConstantCache) -> None:
        self._cache = cache

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes_of("BatchNormalization"):
            rank = rank_of(node.inputs[0])
            if rank is None or rank < 2 or not is_inference(node) or not are_float32(*node.inputs):
                continue
            gamma = node.input_at(1)
            count = 0 if gamma is None or gamma.constant is None else gamma.constant.size
            affine = affine_of(node, count)
            if affine is not None and affine.is_finite:
                yield self._patch(node, affine, rank)

    def _patch(self, node: Node, affine: Affine, rank: int) -> GraphPatch:
        (result, *_), kind = node.outputs, node.outputs[0].type
        patch = GraphPatch(f"scale and shift for {node.name}")
        value = node.inputs[0]
        for op_type, numbers in (("Mul", affine.scale), ("Add", affine.shift)):
            constant = self._constant(node, op_type, numbers, rank)
            made = Value(f"{result.name}_{op_type}", kind)
            patch.add_constant(constant)
            patch.add(Node(op_type, (value, constant), (made,), name=f"{node.name}_{op_type}"))
            value = made
        assert value is not None
        return patch.replace(result, value).remove(node)

    def _constant(self, node: Node, op_type: str, numbers: np.ndarray, rank: int) -> Value:
        sources = [item.constant for item in node.inputs[1:] if item and item.constant is not None]
        epsilon = float(node.attributes.get("epsilon", 1e-5))
        shape = (numbers.size,) + (1,) * (rank - 2)
        array = self._cache.get(
            ("batch normalization", op_type, epsilon, rank),
            sources,
            lambda: numbers.astype(np.float32).reshape(shape),
        )
        kind = TensorType(DType.FLOAT32, array.shape)
        return Value(f"{node.name}_{op_type}_constant", kind, array)
