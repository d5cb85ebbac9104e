"""Types of what looks into images at places that another input holds: grids and regions."""

from __future__ import annotations

import math

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


@type_rule("AffineGrid")
def affine_grid(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, axes, axes + 1) and a size (N, C, ...) make a place for each axis at (N, ..., axes)."""
    theta, size = operand(node, 0), contents.dims(node, 1)
    if theta is None:
        return None
    require_rank("the matrices", theta, 3)
    if size is None:
        return None
    if len(size) not in (4, 5):
        raise ContradictionError(f"a size of {len(size)} lengths is none of an image or a volume")
    require_shape("the matrices", theta, None, len(size) - 2, len(size) - 1)
    return [TensorType(theta.dtype, (*merge(theta.shape[:1], size[:1]), *size[2:], len(size) - 2))]


@type_rule("Col2Im")
def joined_windows(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, C * elements of a window, windows) make (N, C, *image_shape)."""
    columns, image, block = operand(node, 0), contents.dims(node, 1), contents.dims(node, 2)
    if columns is None or image is None or block is None:
        return None
    require_rank("the columns", columns, 3)
    if len(image) != len(block):
        raise ContradictionError(f"{len(block)} lengths of a window are none for {len(image)} axes")
    channels = None
    if isinstance(columns.shape[1], int) and all(isinstance(item, int) for item in block):
        elements = math.prod(item for item in block if isinstance(item, int))
        if not elements or columns.shape[1] % elements:
            raise ContradictionError(f"{columns.shape[1]} are no windows of {elements} elements")
        channels = columns.shape[1] // elements
    return [TensorType(columns.dtype, (columns.shape[0], channels, *image))]


@type_rule("Det")
def determinant(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(..., M, M) makes (...)."""
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the matrices", x, 2, -1)
    merge(x.shape[-2:-1], x.shape[-1:])
    return [TensorType(x.dtype, x.shape[:-2])]
