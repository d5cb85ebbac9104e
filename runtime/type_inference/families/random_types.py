"""Types of random tensors: a shape in an attribute, or another tensor's."""

from __future__ import annotations

from ...graph import DType, Node, TensorType
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..operands import element_type, integer, operand, require_rank
from ..rules import type_rule


@type_rule("RandomNormal", "RandomUniform")
def random_tensor(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of the shape in the attribute; float32 unless another type is given."""
    shape = node.attributes.get("shape")
    dtype = element_type(node, "dtype", DType.FLOAT32)
    if dtype is None or not isinstance(shape, list):
        return None
    if not all(isinstance(dim, int) and dim >= 0 for dim in shape):
        raise ContradictionError(f"its attribute 'shape' is {shape}, which is no shape")
    return [TensorType(dtype, tuple(shape))]


@type_rule("Bernoulli", "RandomNormalLike", "RandomUniformLike")
def random_like(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of the input's shape, and of its type unless another one is given."""
    x = operand(node, 0)
    if x is None:
        return None
    dtype = element_type(node, "dtype", x.dtype)
    return None if dtype is None else [TensorType(dtype, x.shape)]


@type_rule("Multinomial")
def multinomial(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Draw samples of each row of (N, classes): (N, samples), int32 or int64."""
    x, count = operand(node, 0), integer(node, "sample_size", 1)
    dtype = element_type(node, "dtype", DType.INT32)
    if x is None or count is None or dtype is None:
        return None
    require_rank("the input", x, 2)
    if count < 0:
        raise ContradictionError(f"its sample_size is {count}, below zero")
    if dtype not in (DType.INT32, DType.INT64):
        raise ContradictionError(f"its samples are int32 or int64, and cannot be {dtype.label}")
    return [TensorType(dtype, (x.shape[0], count))]
