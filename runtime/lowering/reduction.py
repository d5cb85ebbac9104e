"""Which axes a reduction takes, once its inputs are known. Pure."""

from __future__ import annotations

from ...errors import GraphError
from ..graph import Node

__all__ = ["reduced_axes"]


def reduced_axes(node: Node, rank: int) -> frozenset[int]:
    """Read the axes from the attribute or the input; none are all, or nothing is reduced.

    Raises GraphError for an axis that there is not.
    """
    axes = node.attributes.get("axes") or node.integers_at(1)
    for axis in axes or ():
        if not -rank <= axis < max(1, rank):
            raise GraphError(f"{node.op} (node {node.name!r}) has no axis {axis} among {rank}")
    if axes:
        return frozenset(int(axis) % max(1, rank) for axis in axes)
    return frozenset() if node.attributes.get("noop_with_empty_axes", 0) else frozenset(range(rank))
