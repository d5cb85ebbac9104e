"""A matmul or convolution with the elementwise work on its result, in one kernel.

The node moves to where the work was, because that may read what is made later than the node.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....runtime.graph import Graph, Node, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.rewriting.matching import dtype_of, fuse, static_shape
from ..elementwise.c_types import FLOATS
from ..elementwise.fused_step import (
    ACCELERATOR_DOMAIN,
    FUSED_ELEMENTWISE,
    FusedStep,
    parse_steps,
    step_of,
)
from ..kernels.epilogue import EPILOGUE_START
from ..kernels.registry import KERNELS
from .elementwise_fusion import is_elementwise

__all__ = ["EpilogueFusion"]

_BASES = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class EpilogueFusion(Pass):
    """Append the fused group, or single node, that alone uses a matmul's or convolution's result.

    Floats only, and only what leaves shape and type as they are. Where two results meet, the later
    node takes the work.
    """

    name = "epilogue fusion"
    requires = frozenset({"topological order"})
    enters_bodies = False  # control flow runs on other devices, which know ONNX only
    wanted_ops = frozenset(_BASES)

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in reversed(list(graph.nodes)):
            if node.graph is not graph or node.domain or node.op_type not in _BASES:
                continue
            user = _user(node)
            if user is not None and KERNELS.find_refusal(node) is None:
                yield _patch(node, user)


def _user(node: Node) -> Node | None:
    """Return the one elementwise node that follows and can be taken in."""
    (result,) = node.outputs
    users = result.consumers
    if len(users) != 1 or result.is_graph_output or users[0].graph is not node.graph:
        return None
    (user,) = users
    is_fused = user.domain == ACCELERATOR_DOMAIN and user.op_type == FUSED_ELEMENTWISE
    if not (is_fused or is_elementwise(user)) or not have_one_affinity((node, user)):
        return None
    made = user.outputs[0]
    is_alike = static_shape(made) is not None and static_shape(made) == static_shape(result)
    is_float = dtype_of(result) in FLOATS and dtype_of(made) is dtype_of(result)
    return user if is_alike and is_float else None


def _patch(node: Node, user: Node) -> GraphPatch:
    (result,) = node.outputs
    extra: dict[Value, str] = {}

    def name_of(value: Value) -> str:
        if value is result:
            return "acc"
        return extra.setdefault(value, f"i{EPILOGUE_START + len(extra)}")

    steps: tuple[FusedStep, ...]
    if user.op_type == FUSED_ELEMENTWISE:
        names = {f"i{index}": name_of(value) for index, value in enumerate(user.inputs) if value}
        steps = tuple(step.renamed(names) for step in parse_steps(user))
    else:
        steps = (step_of(user, name_of),)
    bias = node.input_at(2)
    inputs = (*node.inputs[:2], bias, *extra)
    attributes = {**node.attributes, "steps": [str(step) for step in steps]}
    return fuse(
        (node, user),
        user,
        node.op_type,
        inputs,
        attributes,
        domain=ACCELERATOR_DOMAIN,
        name=node.name,
    )
