"""RotaryEmbedding: pairs of numbers of each head, turned by the angle of its place."""

from __future__ import annotations

from .....runtime.graph import DType, Node
from .....runtime.operators import find_unsupported as find_missing
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..registry import kernel

__all__ = ["lower_rotary_embedding"]


def _refuses(node: Node) -> str | None:
    return find_missing(node, {})  # models are of the newest opset


@kernel("RotaryEmbedding", refuses=_refuses)
def lower_rotary_embedding(node: Node, builder: PlanBuilder) -> None:
    """Lower a turn of heads, or of rows of heads side by side, in row-major order."""
    x, cosines, sines, positions = (node.input_at(index) for index in range(4))
    (result,) = node.outputs
    assert x is not None
    assert cosines is not None
    assert sines is not None
    shape, tables = builder.shape(x), builder.shape(cosines)
    builder.expect_shape(sines, tables)
    builder.expect_shape(result, shape)
    if len(shape) == 3:
        heads = int(node.attributes.get("num_heads", 0))
        sequences, places, size = shape[0], shape[1], shape[2] // heads
    else:
        sequences, heads, places, size = shape
    operands = [builder.plain(value, DType.FLOAT32) for value in (x, cosines, sines)]
    if positions is not None:
        builder.expect_shape(positions, (sequences, places))
        operands.append(builder.plain(positions))
    else:
        builder.expect_shape(cosines, (sequences, places, tables[-1]))
    operands.append(builder.result(result, Layout.plain(shape, DType.FLOAT32)))
    builder.native(
        "turn_pairs",
        operands,
        (
            *(sequences, heads, places, size, tables[-1]),
            int(len(shape) == 3),
            int(bool(node.attributes.get("interleaved", 0))),
            int(positions is not None),
            tables[0] if positions is not None else sequences * places,
        ),
    )
