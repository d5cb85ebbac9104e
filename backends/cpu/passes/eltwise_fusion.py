"""Elementwise nodes in a row as one node, which reads and writes memory once."""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass
from ....runtime.passes.rewriting.matching import only_user, static_shape
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
            user = _next(node) if node.graph is graph else None
            start = None if user is None else next(_starts(node), None)
            if start is None:
                continue
            value, steps = start
            nodes, steps = _follow(node, user, steps)
            if len(nodes) > 1:
                inputs = (value, *steps.operands)
                yield fuse(nodes, nodes[-1], "Eltwise", inputs, {"post_ops": steps.numbered(1)})


def _starts(node: Node) -> Iterator[tuple[Value, Steps]]:
    """Return the inputs that a fused group may begin with, and what the node makes of them."""
    for value in dict.fromkeys(node.inputs):
        steps = None if value is None else steps_of(node, value)
        if value is not None and steps is not None and _fit(steps, value):
            yield value, steps


def _follow(node: Node, user: Node | None, steps: Steps) -> tuple[list[Node], Steps]:
    """Add the user of the node's result, and its user, as far as one group may be."""
    nodes = [node]
    while user is not None:
        value = nodes[-1].outputs[0]
        found = steps_of(user, value)
        if found is None or not _fit(found, value):
            break
        longer = steps.then(found)
        if len(longer.post_ops) > MAX_POST_OPS:
            break
        nodes.append(user)
        steps = longer
        user = _next(user)
    return nodes, steps


def _next(node: Node) -> Node | None:
    """Return the node that alone uses the first result, if both may become one."""
    user = only_user(node.outputs[0]) if node.outputs else None
    if user is None or user.graph is not node.graph:
        return None
    if (user.metadata or node.metadata) and user.affinity != node.affinity:
        return None
    # The last of one and the first of the other may become one step.
    return user if _least_steps(node) + _least_steps(user) <= MAX_POST_OPS + 1 else None


def _least_steps(node: Node) -> int:
    fused = node.attributes.get("post_ops") if node.domain else None
    return 1 if fused is None else len(fused)


def _fit(steps: Steps, value: Value) -> bool:
    """True if every operand broadcasts to the value without changing its shape."""
    if not steps.operands:
        return True
    shape = static_shape(value)
    if shape is None:
        return False
    for item in steps.operands:  # noqa: SIM110 (asked of every node, many times)
        if not _broadcasts(static_shape(item), shape):
            return False
    return True


def _broadcasts(given: tuple[int, ...] | None, shape: tuple[int, ...]) -> bool:
    if given == shape:
        return True
    if given is None or len(given) > len(shape):
        return False
    pairs = zip(reversed(given), reversed(shape), strict=False)
    return all(length in (1, wanted) for length, wanted in pairs)
