"""Fold Mul, Div, Add and Sub by constants into the weights of what is before or behind."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...graph import Graph, Node, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import commuted, is_standard
from ..rewriting.pass_base import Pass
from .input_folding import fold_into_reader, is_prepared, per_input_channel, reader_after
from .weight_folding import LINEAR_OPS, Affine, channel_count, fold_into_weights, per_channel

__all__ = ["ScaleShiftFolding"]

_NO_SCALE = np.ones(())
_NO_SHIFT = np.zeros(())


class ScaleShiftFolding(Pass):
    """Fold a number, or one for each output channel, into Conv, ConvTranspose, Gemm or MatMul.

    Only if nothing else uses what is scaled or shifted. What is added to a MatMul stays: that is
    its bias, which needs no other weights. What prepares an input goes into the Conv, Gemm or
    MatMul that reads it: a scale always, a shift into a Gemm and a Conv that does not pad.
    """

    name = "scale shift folding"
    wanted_ops = frozenset(LINEAR_OPS)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if not is_standard(node, "Mul", "Div", "Add", "Sub"):
                continue
            patches = (*_patches(node, graph), *_patches_behind(node))
            patch = next(filter(None, patches), None)
            if patch is not None:
                yield patch


def _patches(node: Node, graph: Graph) -> Iterator[GraphPatch | None]:
    for value, other in [*commuted(node), *_reversed(node)]:
        before = value.producer
        if before is None or before.graph is not graph or other.constant is None:
            continue
        count = channel_count(before)
        if count is None or (before.op_type == "MatMul" and node.op_type in ("Add", "Sub")):
            continue
        numbers = per_channel(before, other.constant, count)
        affine = None if numbers is None else _affine(node, numbers, other is node.inputs[0])
        yield None if affine is None else fold_into_weights(before, node, affine)


def _patches_behind(node: Node) -> Iterator[GraphPatch | None]:
    reader = reader_after(node)
    if reader is None:
        return
    for value, other in [*commuted(node), *_reversed(node)]:
        if other.constant is None or not is_prepared(value):
            continue
        numbers = per_input_channel(reader, value, other.constant)
        affine = None if numbers is None else _affine(node, numbers, other is node.inputs[0])
        yield None if affine is None else fold_into_reader(node, value, reader, affine)


def _reversed(node: Node) -> Iterator[tuple[Value, Value]]:
    """Return a constant minus a value, with the value first."""
    if is_standard(node, "Sub") and node.inputs[0] is not None and node.inputs[1] is not None:
        yield node.inputs[1], node.inputs[0]


def _affine(node: Node, numbers: np.ndarray, is_left: bool) -> Affine | None:
    if node.op_type == "Mul":
        return Affine(numbers, _NO_SHIFT)
    if node.op_type == "Div":
        with np.errstate(divide="ignore", over="ignore"):
            return Affine(np.asarray(1.0 / numbers), _NO_SHIFT)
    if node.op_type == "Add":
        return Affine(_NO_SCALE, numbers)
    return Affine(np.asarray(-1.0), numbers) if is_left else Affine(_NO_SCALE, -numbers)
