"""Connected elementwise nodes as one node, which reads and writes memory once.

From each elementwise node, the last ones first, a group grows backwards: it takes in the node that
makes one of its operands, if that is elementwise, used by the group alone, and has as many elements
as the result, so that nothing is computed twice. A group may branch and join.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ....runtime.graph import DType, Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.rewriting.matching import does_broadcast, dtype_of, fuse, static_shape
from ..elementwise.elementwise_operators import ONNX_OPERATORS
from ..elementwise.fused_step import ACCELERATOR_DOMAIN, FUSED_ELEMENTWISE, step_of
from ..kernels.registry import KERNELS

__all__ = ["ElementwiseFusion", "is_elementwise"]

_MOST_STEPS = 32
_MOST_OPERANDS = 12
"""Of one kernel; registers and arguments are few."""
_NARROW = (DType.FLOAT16, DType.BFLOAT16)


class ElementwiseFusion(Pass):
    """Merge two or more elementwise nodes into one; ``fused_step.py`` tells of its steps."""

    name = "elementwise fusion"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        place = {node: index for index, node in enumerate(graph.nodes)}
        for node in reversed(list(graph.nodes)):
            if node.graph is not graph or not is_elementwise(node):
                continue
            members = sorted(_grown(node), key=place.__getitem__)
            if len(members) > 1:
                yield _patch(members, node)


def is_elementwise(node: Node) -> bool:
    """True for a node of ONNX that can be a step, with known shapes that broadcast."""
    if node.domain or node.op_type not in ONNX_OPERATORS or len(node.outputs) != 1:
        return False
    shape = static_shape(node.outputs[0])
    if shape is None or KERNELS.find_refusal(node) is not None:
        return False
    return all(
        does_broadcast(static_shape(value), shape) for value in node.inputs if value is not None
    )


def _grown(last: Node) -> set[Node]:
    members = {last}
    count = _count(last.outputs[0])
    waiting = [last]
    while waiting:
        for value in waiting.pop().inputs:
            maker = None if value is None else value.producer
            if value is None or maker is None or maker in members or value.is_graph_output:
                continue
            if maker.graph is not last.graph or not is_elementwise(maker) or _rounds(maker):
                continue
            if _count(value) != count or any(user not in members for user, _ in value.uses):
                continue
            longer = {*members, maker}
            is_small = len(longer) <= _MOST_STEPS and len(_inputs(longer)) <= _MOST_OPERANDS
            if is_small and have_one_affinity(longer):
                members = longer
                waiting.append(maker)
    return members


def _rounds(node: Node) -> bool:
    """True for what narrows the type, which only storing does."""
    return node.op_type == "Cast" and dtype_of(node.outputs[0]) in _NARROW


def _count(value: Value) -> int:
    return math.prod(static_shape(value) or (-1,))


def _inputs(members: set[Node]) -> dict[Value, None]:
    made = {value for node in members for value in node.outputs}
    used = (value for node in members for value in node.inputs)
    return dict.fromkeys(value for value in used if value is not None and value not in made)


def _patch(members: list[Node], last: Node) -> GraphPatch:
    operands: dict[Value, str] = {}
    results: dict[Value, str] = {}

    def name_of(value: Value) -> str:
        return results.get(value) or operands.setdefault(value, f"i{len(operands)}")

    steps = []
    for index, node in enumerate(members):
        steps.append(str(step_of(node, name_of)))
        results[node.outputs[0]] = f"s{index}"
    return fuse(
        members,
        last,
        FUSED_ELEMENTWISE,
        tuple(operands),
        {"steps": steps},
        domain=ACCELERATOR_DOMAIN,
    )
