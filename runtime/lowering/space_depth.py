"""DepthToSpace and SpaceToDepth as a reshape and a transpose. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import GraphError
from ..graph import Node

__all__ = ["block_transpose"]


def block_transpose(node: Node, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the six axes that an input of this shape is seen with, and their order in the result.

    Raises GraphError for an input that is not made of whole blocks.
    """
    block = int(node.attributes["blocksize"])
    divided = shape[2:] if node.op_type == "SpaceToDepth" else shape[1:2]
    side = block if node.op_type == "SpaceToDepth" else block**2
    if len(shape) != 4 or block < 1 or any(length % side for length in divided):
        raise GraphError(
            f"{node.op} (node {node.name!r}) makes no blocks of {block} of {list(shape)}"
        )
    batch, channels, height, width = shape
    if node.op_type == "SpaceToDepth":
        lengths = (batch, channels, height // block, block, width // block, block)
        return lengths, (0, 3, 5, 1, 2, 4)
    if node.text("mode", "DCR") == "CRD":
        return (batch, channels // block**2, block, block, height, width), (0, 1, 4, 2, 5, 3)
    return (batch, block, block, channels // block**2, height, width), (0, 3, 4, 1, 5, 2)
