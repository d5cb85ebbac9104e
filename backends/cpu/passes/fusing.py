"""Nodes replaced by one of the CPU's own domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....runtime.graph import DType, Node, TensorType, Value
from ....runtime.passes import GraphPatch
from ....runtime.passes.rewriting import matching
from ..onednn.post_ops import CPU_DOMAIN

__all__ = ["fuse", "read_packed"]


def fuse(
    nodes: Iterable[Node],
    last: Node,
    op_type: str,
    inputs: Iterable[Value | None],
    attributes: Mapping[str, Any],
    *,
    name: str | None = None,
    before: Node | None = None,
) -> GraphPatch:
    """Replace nodes as ``matching.fuse`` does, by one of the CPU's own domain."""
    return matching.fuse(
        nodes, last, op_type, inputs, attributes, domain=CPU_DOMAIN, name=name, before=before
    )


def read_packed(
    patch: GraphPatch,
    node: Node,
    operands: Sequence[Value | None],
    attributes: Mapping[str, Any],
    dtype: DType,
    others: Sequence[Node],
) -> GraphPatch:
    """Replace a matmul, and others that go with it, by a ``PackedMatMul``.

    That computes float32, of which a Cast makes ``dtype``, the type of the node's result.
    """
    (old,) = node.outputs
    shape = old.type.shape if isinstance(old.type, TensorType) else None
    made = Value(old.name, TensorType(DType.FLOAT32, shape))
    fused = Node("PackedMatMul", operands, (made,), attributes, name=node.name, domain=CPU_DOMAIN)
    patch.add(fused, node, (node, *others))
    result = made
    if dtype is not DType.FLOAT32:
        made.name = f"{old.name}_f32"
        result = Value(old.name, old.type)
        narrow = Node("Cast", [made], [result], {"to": dtype.value}, name=f"{node.name}_narrow")
        patch.add(narrow, node, (node,))
    patch.replace(old, result).remove(node)
    for other in others:
        patch.remove(other)
    return patch
