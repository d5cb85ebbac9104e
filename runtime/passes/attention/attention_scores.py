"""From the matmul of queries and keys to what a Softmax is given: scales and masks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...graph import Graph, Node, Value
from ...graph.sym_array import decide_by
from ..rewriting.matching import commuted, dtype_of, is_standard, scalar_of, static_shape
from .head_layout import scalar_factor

__all__ = ["MaskStep", "Scores", "mask_shape", "match_scores"]

_ABSORBING = -1e30
"""Added to a score of any sane size, this and everything below gives itself."""
_EXCLUDING = -1e4
"""Below every other score by this much, a key has no share in float32; exporters write it, too."""
_LONGEST = 8
"""Nodes between the matmul and the Softmax: two Reshapes, a scale, some masks."""


class MaskStep(NamedTuple):
    """What happens to the scores: ``operand`` is added, or chooses between them and ``fill``.

    ``rank`` is that of the scores at that place: 3 if batch and heads are one axis. Values compare
    by identity, so equal steps do the same.
    """

    operand: Value
    rank: int
    fill: float | None = None
    is_kept_where_true: bool = True


class Scores(NamedTuple):
    """``matmul`` times ``scale``, then the steps in order."""

    matmul: Node
    scale: float = 1.0
    steps: tuple[MaskStep, ...] = ()
    nodes: tuple[Node, ...] = ()


def match_scores(value: Value | None, graph: Graph, depth: int = _LONGEST) -> Scores | None:
    """Match a matmul of two computed values, scaled and masked; shapes must be static.

    A mask must not widen the scores. A Where with a number that is not far below all scores is no
    mask, unless its condition is known to leave each row a key.
    """
    node = None if value is None else value.producer
    if node is None or node.graph is not graph or not depth:
        return None
    shape = static_shape(value)
    if shape is None:
        return None
    if is_standard(node, "MatMul"):
        is_computed = not any(v is None or v.is_constant for v in node.inputs)
        return Scores(node) if is_computed else None
    if is_standard(node, "Reshape"):
        return _reshaped(node, graph, depth)
    if is_standard(node, "Mul", "Div"):
        return _scaled(node, graph, depth)
    if is_standard(node, "Add"):
        return _added(node, graph, depth)
    return _chosen(node, graph, depth) if is_standard(node, "Where") else None


def mask_shape(step: MaskStep, heads: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return a mask's shape beside (batch, heads, queries, keys), None if it is not known.

    ``heads`` starts with batch and heads: a first axis that is both at once is divided.
    """
    shape = static_shape(step.operand)
    if shape is None or step.rank != len(shape) or step.rank != 3 or shape[0] == 1:
        return shape
    return (*heads[:2], *shape[1:])


def _reshaped(node: Node, graph: Graph, depth: int) -> Scores | None:
    """Match a Reshape that joins or divides batch and heads."""
    before, after = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    if before is None or after is None or before[-2:] != after[-2:]:
        return None
    found = match_scores(node.inputs[0], graph, depth - 1)
    return found and found._replace(nodes=(*found.nodes, node))


def _scaled(node: Node, graph: Graph, depth: int) -> Scores | None:
    factor = scalar_factor(node)
    found = match_scores(factor[0], graph, depth - 1) if factor is not None else None
    if factor is None or found is None or found.steps:
        return None
    return found._replace(scale=found.scale * factor[1], nodes=(*found.nodes, node))


def _added(node: Node, graph: Graph, depth: int) -> Scores | None:
    for scores, mask in commuted(node):
        is_typed = dtype_of(mask) is dtype_of(scores)
        if static_shape(scores) != static_shape(node.outputs[0]) or not is_typed:
            continue
        found = match_scores(scores, graph, depth - 1)
        if found is not None:
            return _with_step(found, node, MaskStep(mask, len(static_shape(scores) or ())))
    return None


def _chosen(node: Node, graph: Graph, depth: int) -> Scores | None:
    condition, *branches = node.inputs
    if condition is None:
        return None
    for position, scores in enumerate(branches):
        fill = scalar_of(branches[1 - position])
        if fill is None or static_shape(scores) != static_shape(node.outputs[0]):
            continue
        found = match_scores(scores, graph, depth - 1)
        rank = len(static_shape(scores) or ())
        step = MaskStep(condition, rank, fill, is_kept_where_true=position == 0)
        if found is not None and _is_addition(step, found):
            return _with_step(found, node, step)
    return None


def _with_step(found: Scores, node: Node, step: MaskStep) -> Scores:
    return found._replace(steps=(*found.steps, step), nodes=(*found.nodes, node))


def _is_addition(step: MaskStep, found: Scores) -> bool:
    """True if adding the number instead of choosing it gives the same probabilities."""
    if step.fill is None or step.fill <= _ABSORBING:
        return True
    condition = step.operand.constant
    if condition is None or found.steps or not step.fill <= _EXCLUDING:
        return False
    is_kept = step.is_kept_where_true

    def keeps_some(condition: np.ndarray) -> bool:
        kept = condition if is_kept else np.logical_not(condition)
        return bool(kept.ndim) and bool(kept.any(axis=-1).all())

    return decide_by(condition, keeps_some)
