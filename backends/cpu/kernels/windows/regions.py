"""Regions of images as bins: from points between the elements (RoiAlign), or by the greatest."""

from __future__ import annotations

from .....runtime.graph import DType, Node
from .....runtime.operators import find_unsupported as find_missing
from ...native.step_runner import double_bits
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..registry import kernel

__all__ = ["lower_cells", "lower_regions"]


def _refuses(node: Node) -> str | None:
    return find_missing(node, {})  # models are of the newest opset


@kernel("RoiAlign", refuses=_refuses)
def lower_regions(node: Node, builder: PlanBuilder) -> None:
    """Lower the pooling of regions, images and results in row-major order."""
    source, regions, batches = node.inputs
    (result,) = node.outputs
    assert source is not None
    assert regions is not None
    assert batches is not None
    attributes = node.attributes
    bins = [int(attributes.get(f"output_{axis}", 1)) for axis in ("height", "width")]
    shape, (count, *_) = builder.shape(source), builder.shape(regions)
    builder.expect_shape(regions, (count, 4))
    builder.expect_shape(batches, (count,))
    made = (count, shape[1], *bins)
    builder.expect_shape(result, made)
    operands = (
        builder.plain(source, DType.FLOAT32),
        builder.plain(regions, DType.FLOAT32),
        builder.plain(batches),
        builder.result(result, Layout.plain(made, DType.FLOAT32)),
    )
    form = attributes.get("coordinate_transformation_mode", "half_pixel")
    builder.native(
        "align_regions",
        operands,
        (
            *shape,
            count,
            *bins,
            int(attributes.get("sampling_ratio", 0)),
            int(attributes.get("mode", "avg") == "max"),
            int(form == "half_pixel"),
            double_bits(float(attributes.get("spatial_scale", 1.0))),
        ),
    )


@kernel("MaxRoiPool", refuses=_refuses)
def lower_cells(node: Node, builder: PlanBuilder) -> None:
    """Lower the greatest elements of cells of regions, all in row-major order."""
    source, regions = node.inputs
    (result,) = node.outputs
    assert source is not None
    assert regions is not None
    rows, columns = (int(count) for count in node.attributes["pooled_shape"])
    shape, (count, *_) = builder.shape(source), builder.shape(regions)
    builder.expect_shape(regions, (count, 5))
    made = (count, shape[1], rows, columns)
    builder.expect_shape(result, made)
    operands = (
        builder.plain(source, DType.FLOAT32),
        builder.plain(regions, DType.FLOAT32),
        builder.result(result, Layout.plain(made, DType.FLOAT32)),
    )
    scale = float(node.attributes.get("spatial_scale", 1.0))
    builder.native("pool_regions", operands, (*shape, count, rows, columns, double_bits(scale)))
