"""Operators on shapes: constants of the plan, and tensors of equal elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....runtime.graph import DType, Node
from .....runtime.lowering.shape_kernels import register_shape_kernels
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ..registry import KERNELS, kernel

register_shape_kernels(KERNELS)


@kernel("ConstantOfShape", dtypes=None, constant_inputs=(0,))
def lower_constant_of_shape(node: Node, builder: PlanBuilder) -> None:
    """Lower a tensor of equal elements: memory that is filled in each run."""
    (result,) = node.outputs
    value = np.asarray(node.attributes.get("value", np.zeros(1, np.float32)))
    builder.expect_shape(result, node.integers_at(0) or [])
    layout = Layout.plain(builder.shape(result), DType.of(value.dtype))
    made = builder.result(result, layout)
    if layout.count:
        item = layout.dtype.item_bytes
        builder.native("fill", (made,), (item, layout.count, word_of(value)))


def word_of(value: np.ndarray[Any, Any]) -> int:
    """Return the bytes of one element, in the low end of a signed 64-bit word."""
    data = value.reshape(-1)[:1].tobytes()
    return int.from_bytes(data.ljust(8, b"\0"), "little", signed=True)
