"""Operators whose results shapes alone determine: constants of the plan."""

from __future__ import annotations

import numpy as np

from ....runtime.graph import Node
from ....runtime.lowering.shape_kernels import register_shape_kernels
from ..plan_builder import PlanBuilder
from .registry import KERNELS, kernel

register_shape_kernels(KERNELS)


@kernel("ConstantOfShape", dtypes=None, constant_inputs=(0,))
def lower_constant_of_shape(node: Node, builder: PlanBuilder) -> None:
    """Lower a tensor of equal elements."""
    value = np.asarray(node.attributes.get("value", np.zeros(1, np.float32))).reshape(-1)
    array = np.full(builder.shape(node.outputs[0]), value[0], value.dtype)
    builder.define_constant(node.outputs[0], array)
