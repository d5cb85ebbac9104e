"""Types of random tensors: a told shape, or another tensor's."""

from __future__ import annotations

from ..graph import DType, Node, TensorType
from .dims import dtype_numbered
from .operands import integer, operand
from .rules import type_rule
from .shape_content import ShapeContent


@type_rule("RandomNormal", "RandomUniform")
def random_tensor(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of the told shape; float32 unless another type is told."""
    shape = node.attributes.get("shape")
    dtype = dtype_numbered(node.attributes.get("dtype", DType.FLOAT32.value))
    if dtype is None or not isinstance(shape, list):
        return None
    if not all(isinstance(dim, int) and dim >= 0 for dim in shape):
        return None
    return [TensorType(dtype, tuple(shape))]


@type_rule("Bernoulli", "RandomNormalLike", "RandomUniformLike")
def random_like(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of the input's shape, and of its type unless another one is told."""
    x = operand(node, 0)
    if x is None:
        return None
    told = "dtype" in node.attributes
    dtype = dtype_numbered(node.attributes["dtype"]) if told else x.dtype
    return None if dtype is None else [TensorType(dtype, x.shape)]


@type_rule("Multinomial")
def multinomial(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Draw from (N, classes) so many samples of each row: (N, samples), int32 or int64."""
    x, count = operand(node, 0), integer(node, "sample_size", 1)
    dtype = dtype_numbered(node.attributes.get("dtype", DType.INT32.value))
    if x is None or len(x.shape) != 2 or count is None or count < 0:
        return None
    if dtype not in (DType.INT32, DType.INT64):
        return None
    return [TensorType(dtype, (x.shape[0], count))]
