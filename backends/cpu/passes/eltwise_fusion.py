"""Elementwise nodes in a row as one node, which reads and writes memory once."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.matching import only_user, static_shape
from .elementwise_steps import MAX_POST_OPS, Steps, steps_of
from .fusing import fuse

__all__ = ["EltwiseFusion"]


class EltwiseFusion(Pass):
    """Merge two or more float32 nodes, each the only user of the one before, into ``Eltwise``.

    Its input 0 has the shape of the result; the others broadcast to it, and may be tensors.
    """

    name = "eltwise fusion"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            start = next(_starts(node), None) if node.graph is graph else None
            if start is None:
                continue
            value, steps = start
            nodes, steps = _follow(node, steps)
            if len(nodes) > 1:
                inputs = (value, *steps.operands)
                yield fuse(nodes, nodes[-1], "Eltwise", inputs, {"post_ops": steps.numbered(1)})


def _starts(node: Node) -> Iterator[tuple[Value, Steps]]:
    """Return the inputs that a fused group may begin with, and what the node makes of them."""
    for value in dict.fromkeys(node.inputs):
        steps = None if value is None else steps_of(node, value)
        if value is not None and steps is not None and _fit(steps, value):
            yield value, steps


def _follow(node: Node, steps: Steps) -> tuple[list[Node], Steps]:
    nodes = [node]
    while True:
        value = nodes[-1].outputs[0]
        user = only_user(value)
        if user is None or user.graph is not node.graph or user.affinity != node.affinity:
            return nodes, steps
        found = steps_of(user, value)
        if found is None or not _fit(found, value):
            return nodes, steps
        longer = steps.then(found)
        if len(longer.post_ops) > MAX_POST_OPS:
            return nodes, steps
        nodes.append(user)
        steps = longer


def _fit(steps: Steps, value: Value) -> bool:
    """True if every operand broadcasts to the value without changing its shape."""
    if not steps.operands:
        return True
    shape = static_shape(value)
    return shape is not None and all(
        _broadcasts(static_shape(item), shape) for item in steps.operands
    )


def _broadcasts(given: tuple[int, ...] | None, shape: tuple[int, ...]) -> bool:
    if given == shape:
        return True
    if given is None or len(given) > len(shape):
        return False
    pairs = zip(reversed(given), reversed(shape), strict=False)
    return all(length in (1, wanted) for length, wanted in pairs)
