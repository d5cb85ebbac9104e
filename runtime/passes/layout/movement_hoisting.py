"""Move elements before they are converted and scaled: while they are narrow, and next to an input.

Theory of operation. A Transpose or a Slice of what a Cast widens moves less if it stands before the
Cast. And a scale folds into the operator that reads it only if nothing stands between, so a
Transpose goes before the constant scales and shifts that prepare an input. Each rewrite brings one
of these nodes nearer to the inputs of the graph, and none takes one away from there: this ends.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...graph import DType, Graph, Node, TensorType, Value
from ..folding.input_folding import is_prepared
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, only_user, rank_of
from ..rewriting.pass_base import Pass
from ..rewriting.patch_check import have_one_affinity

__all__ = ["MovementHoisting"]


class MovementHoisting(Pass):
    """Swap a Transpose or Slice with the Cast, and a Transpose with the scale or shift, before it.

    Only if nothing else uses what stands before it.
    """

    name = "movement hoisting"
    wanted_ops = frozenset({"Slice", "Transpose"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            before = node.inputs[0].producer if node.inputs and node.inputs[0] else None
            if before is None or before.graph is not graph or node.graph is not graph:
                continue
            if only_user(before.outputs[0]) is not node or not have_one_affinity((before, node)):
                continue
            order = _order(node)
            if is_standard(before, "Cast") and (order is not None or _is_slice(node)):
                patch = _before_cast(node, before)
            elif order is not None and is_standard(before, "Add", "Sub", "Mul", "Div"):
                patch = _before_scale(node, before, order)
            else:
                continue
            if patch is not None:
                yield patch


def _before_cast(node: Node, cast: Node) -> GraphPatch | None:
    source, made = cast.inputs[0], node.outputs[0]
    narrow, wide = (None if value is None else value.type for value in (source, made))
    if source is None or not isinstance(narrow, TensorType) or not isinstance(wide, TensorType):
        return None
    if DType.STRING in (narrow.dtype, wide.dtype) or (
        narrow.dtype.item_bytes >= wide.dtype.item_bytes
    ):
        return None
    moved = Value(f"{source.name}_moved", TensorType(narrow.dtype, wide.shape))
    return _swapped(node, cast, source, moved, [moved])


def _before_scale(node: Node, step: Node, order: list[int]) -> GraphPatch | None:
    left, right = step.inputs
    for source, other in ((left, right), (right, left)):
        if source is None or other is None or other.constant is None:
            continue
        known, array = source.type, other.constant
        if not isinstance(known, TensorType) or known.shape is None:
            continue
        if len(known.shape) != len(order) or array.ndim > len(order) or not is_prepared(source):
            continue
        shape = tuple(known.shape[axis] for axis in order)
        moved = Value(f"{source.name}_moved", TensorType(known.dtype, shape))
        constant = other
        if array.size != 1:
            wide = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
            turned = np.ascontiguousarray(wide.transpose(order))
            turned.flags.writeable = False
            kind = TensorType(DType.of(turned.dtype), turned.shape)
            constant = Value(f"{other.name}_moved", kind, turned)
        inputs = [moved if value is source else constant for value in step.inputs]
        patch = _swapped(node, step, source, moved, inputs)
        return patch if constant is other else patch.add_constant(constant)
    return None


def _swapped(
    node: Node, step: Node, source: Value, moved: Value, inputs: list[Value]
) -> GraphPatch:
    """Move ``source`` first, and take the step, with these inputs, after it."""
    old = node.outputs[0]
    made = Value(old.name, old.type)
    first = Node(node.op_type, (source, *node.inputs[1:]), [moved], node.attributes, name=node.name)
    second = Node(step.op_type, inputs, [made], step.attributes, name=step.name)
    return (
        GraphPatch(f"{node.op} {node.name!r} before {step.op} {step.name!r}")
        .add(first, before=step, stands_for=[node])
        .add(second, before=node, stands_for=[step])
        .replace(old, made)
        .remove(node)
        .remove(step)
    )


def _order(node: Node) -> list[int] | None:
    """Read the order of a standard Transpose; None for other nodes, or if it is not known."""
    if not is_standard(node, "Transpose") or rank_of(node.inputs[0]) is None:
        return None
    order = node.attributes.get("perm")
    rank = rank_of(node.inputs[0]) or 0
    return [int(axis) for axis in order] if order else list(reversed(range(rank)))


def _is_slice(node: Node) -> bool:
    """True for a standard Slice of which all but the data is constant."""
    return is_standard(node, "Slice") and all(
        value is None or value.is_constant for value in node.inputs[1:]
    )
