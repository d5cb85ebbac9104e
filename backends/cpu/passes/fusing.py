"""Nodes replaced by one of the CPU's own domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....runtime.graph import Node, Value
from ....runtime.passes import GraphPatch
from ....runtime.passes.rewriting import matching
from ..onednn.post_ops import CPU_DOMAIN

__all__ = ["fuse"]


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
