"""Kernels of operators whose results shapes alone determine: constants of the plan, on any device.

Most of these fold when a plan is specialised; what is left over is what is too large to be folded,
or the result of a network that does nothing else.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from ..graph import Node
from .kernel_registry import KernelRegistry
from .node_operands import Lowering

__all__ = ["register_shape_kernels"]

Builder = TypeVar("Builder", bound=Lowering)


def register_shape_kernels(registry: KernelRegistry[Builder]) -> None:
    """Register Shape, Size and Range."""
    registry.kernel("Shape", dtypes=None)(lower_shape)
    registry.kernel("Size", dtypes=None)(lower_size)
    registry.kernel("Range", dtypes=None, constant_inputs=(0, 1, 2))(lower_range)


def lower_shape(node: Node, builder: Lowering) -> None:
    """Lower the lengths of a value, or those of some axes."""
    source = node.inputs[0]
    assert source is not None
    lengths = builder.shape(source)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(lengths))
    builder.define_constant(node.outputs[0], np.array(lengths[start:end], np.int64))


def lower_size(node: Node, builder: Lowering) -> None:
    """Lower the number of elements of a value."""
    source = node.inputs[0]
    assert source is not None
    builder.define_constant(node.outputs[0], np.array(math.prod(builder.shape(source)), np.int64))


def lower_range(node: Node, builder: Lowering) -> None:
    """Lower a row of numbers."""
    start, _, step = (builder.constant(value) for value in node.inputs)
    assert start is not None
    assert step is not None
    (count,) = builder.shape(node.outputs[0])
    numbers = start + np.arange(count) * step
    builder.define_constant(node.outputs[0], numbers.astype(start.dtype))
