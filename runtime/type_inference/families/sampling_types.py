"""Types of what looks into images at places that another input holds: grids and regions."""

from __future__ import annotations

from ...graph import Node, TensorType
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import merge
from ..operands import integer, integers, operand, require_length, require_rank, require_shape
from ..rules import type_rule


@type_rule("GridSample")
def grid_sample(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, C, ...) with a place for each axis at (N, ..., axes) make (N, C, ...) of the grid."""
    x, grid = operand(node, 0), operand(node, 1)
    if x is None or grid is None:
        return None
    require_rank("the input", x, 3, -1)
    require_rank("the grid", grid, len(x.shape))
    require_length("the grid's last length", grid.shape[-1], len(x.shape) - 2)
    batch = merge(x.shape[:1], grid.shape[:1])
    return [TensorType(x.dtype, (*batch, x.shape[1], *grid.shape[1:-1]))]


@type_rule("RoiAlign")
def align_regions(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, C, H, W), regions (R, 4) and the batch of each (R) make (R, C, height, width)."""
    x, regions, batches = operand(node, 0), operand(node, 1), operand(node, 2)
    height, width = integer(node, "output_height", 1), integer(node, "output_width", 1)
    if x is None or regions is None or batches is None or height is None or width is None:
        return None
    require_rank("the input", x, 4)
    require_shape("the list of regions", regions, None, 4)
    require_rank("the list of batches", batches, 1)
    count = merge(regions.shape[:1], batches.shape)
    if min(height, width) < 1:
        raise ContradictionError(f"its results of {height} x {width} would be empty")
    return [TensorType(x.dtype, (*count, x.shape[1], height, width))]


@type_rule("MaxRoiPool")
def pool_regions(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, C, H, W) and regions with the batch of each (R, 5) make (R, C, height, width)."""
    x, regions = operand(node, 0), operand(node, 1)
    size = integers(node, "pooled_shape", 2, least=1)
    if x is None or regions is None or size is None:
        return None
    require_rank("the input", x, 4)
    require_shape("the list of regions", regions, None, 5)
    return [TensorType(x.dtype, (regions.shape[0], x.shape[1], *size))]
