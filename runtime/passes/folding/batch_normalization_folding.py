"""Fold a BatchNormalization into the weights of what it follows, or of what is behind it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...graph import Graph, Node
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard
from ..rewriting.node_traits import is_unused
from ..rewriting.pass_base import Pass
from .input_folding import fold_into_reader, reader_after
from .weight_folding import Affine, channel_axis, channel_count, fold_into_weights

__all__ = ["BatchNormalizationFolding", "affine_of", "is_inference"]


class BatchNormalizationFolding(Pass):
    """Fold it into Conv, ConvTranspose, Gemm or a MatMul of two axes, whose weights are constants.

    Only one that infers, with constants for its statistics, and only if nothing else uses what it
    is given. Else it goes into a Conv without pads or a Gemm that alone reads what it gives. A
    model that was converted from an old opset has it without ``training_mode``.
    """

    name = "batch normalization folding"
    wanted_ops = frozenset({"BatchNormalization"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in graph.nodes_of("BatchNormalization"):
            if not node.inputs or node.inputs[0] is None or not is_inference(node):
                continue
            patch = _into_what_is_before(node, graph) or _into_what_is_behind(node)
            if patch is not None:
                yield patch


def _into_what_is_before(node: Node, graph: Graph) -> GraphPatch | None:
    before = node.inputs[0].producer if node.inputs[0] else None
    if before is None or before.graph is not graph:
        return None
    count = channel_count(before)
    affine = affine_of(node, count) if count and channel_axis(before) == 1 else None
    return None if affine is None else fold_into_weights(before, node, affine)


def _into_what_is_behind(node: Node) -> GraphPatch | None:
    reader, scale, value = reader_after(node), node.input_at(1), node.inputs[0]
    if reader is None or value is None or scale is None or scale.constant is None:
        return None
    if is_standard(reader, "MatMul"):
        return None  # its channels need not be those of the second axis
    affine = affine_of(node, scale.constant.size)
    return None if affine is None else fold_into_reader(node, value, reader, affine)


def is_inference(node: Node) -> bool:
    """True for a node that normalises by given statistics, for each channel, and no more."""
    if not is_standard(node, "BatchNormalization") or node.attributes.get("training_mode", 0):
        return False
    is_per_channel = bool(node.attributes.get("spatial", 1))
    return is_per_channel and all(is_unused(value) for value in node.outputs[1:])


def affine_of(node: Node, count: int) -> Affine | None:
    """Write the normalisation as one scale and one shift; None without constants of this length."""
    arrays = [
        value.constant.astype(np.float64)
        for value in (node.input_at(index) for index in range(1, 5))
        if value is not None and value.constant is not None and value.constant.shape == (count,)
    ]
    if len(arrays) < 4:
        return None
    gamma, beta, mean, variance = arrays
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = gamma / np.sqrt(variance + epsilon)
    return Affine(scale, beta - mean * scale)
