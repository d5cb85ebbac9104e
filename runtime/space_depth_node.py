"""DepthToSpace and SpaceToDepth as a reshape and a transpose. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Node
from .node_parameters import text_of

__all__ = ["block_transpose"]


def block_transpose(node: Node, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Give the six axes that an input of this shape is seen with, and their order in the result."""
    batch, channels, height, width = shape
    block = int(node.attributes["blocksize"])
    if node.op_type == "SpaceToDepth":
        lengths = (batch, channels, height // block, block, width // block, block)
        return lengths, (0, 3, 5, 1, 2, 4)
    if text_of(node, "mode", "DCR") == "CRD":
        return (batch, channels // block**2, block, block, height, width), (0, 1, 4, 2, 5, 3)
    return (batch, block, block, channels // block**2, height, width), (0, 3, 4, 1, 5, 2)
