"""GridSample: what lies between the elements of images, at places that the run gives."""

from __future__ import annotations

import math

from .....runtime.graph import DType, Node
from .....runtime.operators import find_unsupported as find_missing
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..numpy_operators import lower_by_numpy
from ..registry import kernel

__all__ = ["lower_samples"]

_FORMS = {"nearest": 0, "linear": 1, "bilinear": 1, "cubic": 2, "bicubic": 2}
_PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}
_MOST_AXES = 3


def _refuses(node: Node) -> str | None:
    form, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if form not in _FORMS or padding not in _PADDINGS:
        return f"GridSample has no mode {form!r} with the padding {padding!r}"
    return find_missing(node, {})  # models are of the newest opset


@kernel("GridSample", refuses=_refuses)
def lower_samples(node: Node, builder: PlanBuilder) -> None:
    """Lower weighted sums of neighbours in row-major order; numpy has those of more axes."""
    source, grid = node.inputs
    (result,) = node.outputs
    assert source is not None
    assert grid is not None
    (count, channels, *lengths), (_, *points, _) = builder.shape(source), builder.shape(grid)
    if len(lengths) > _MOST_AXES:
        lower_by_numpy(node, builder)
        return
    builder.expect_shape(grid, (count, *points, len(lengths)))
    made = (count, channels, *points)
    builder.expect_shape(result, made)
    operands = (
        builder.plain(source, DType.FLOAT32),
        builder.plain(grid, DType.FLOAT32),
        builder.result(result, Layout.plain(made, DType.FLOAT32)),
    )
    builder.native(
        "sample_points",
        operands,
        (
            *(count, channels, math.prod(points), len(lengths)),
            _FORMS[node.text("mode", "linear")],
            _PADDINGS[node.text("padding_mode", "zeros")],
            int(bool(node.attributes.get("align_corners", 0))),
            *(lengths + [1] * _MOST_AXES)[:_MOST_AXES],
        ),
    )
