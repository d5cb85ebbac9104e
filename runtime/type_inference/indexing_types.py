"""Types of what is picked and put by index."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import DType, Node, TensorType
from .dims import axis_of, is_contradiction, with_dims
from .operands import integer, operand
from .rules import type_rule
from .shape_content import ShapeContent

Types = Sequence[TensorType] | None


@type_rule("Gather")
def _gather(node: Node, contents: ShapeContent) -> Types:
    data, indices = operand(node, 0), operand(node, 1)
    axis = None if data is None else axis_of(node.attributes.get("axis", 0), len(data.shape))
    if data is None or indices is None or axis is None:
        return None
    return (TensorType(data.dtype, data.shape[:axis] + indices.shape + data.shape[axis + 1 :]),)


@type_rule("GatherElements")
def _gather_elements(node: Node, contents: ShapeContent) -> Types:
    data, indices = operand(node, 0), operand(node, 1)
    if data is None or indices is None or len(data.shape) != len(indices.shape):
        return None
    if axis_of(node.attributes.get("axis", 0), len(data.shape)) is None:
        return None
    return (TensorType(data.dtype, indices.shape),)


@type_rule("GatherND")
def _gather_nd(node: Node, contents: ShapeContent) -> Types:
    """The last axis of the indices holds one index for each axis of the data after the batch's."""
    x, places, batch = operand(node, 0), operand(node, 1), integer(node, "batch_dims", 0)
    if x is None or places is None or batch is None:
        return None
    data, indices = x.shape, places.shape
    if not 0 <= batch < min(len(data), len(indices)):
        return None
    depth = indices[-1]
    if not isinstance(depth, int) or not 1 <= depth <= len(data) - batch:
        return None
    if is_contradiction(data[:batch], indices[:batch]):
        return None
    return (TensorType(x.dtype, indices[:-1] + data[batch + depth :]),)


@type_rule("ScatterElements")
def _scatter_elements(node: Node, contents: ShapeContent) -> Types:
    data, indices, updates = operand(node, 0), operand(node, 1), operand(node, 2)
    if data is None or indices is None or updates is None:
        return None
    if len(data.shape) != len(indices.shape) or is_contradiction(indices.shape, updates.shape):
        return None
    if axis_of(node.attributes.get("axis", 0), len(data.shape)) is None:
        return None
    return (TensorType(data.dtype, data.shape),)


@type_rule("ScatterND")
def _scatter_nd(node: Node, contents: ShapeContent) -> Types:
    data, indices, updates = operand(node, 0), operand(node, 1), operand(node, 2)
    if data is None or indices is None or updates is None or not indices.shape:
        return None
    depth = indices.shape[-1]
    if isinstance(depth, int):
        replaced = indices.shape[:-1] + data.shape[depth:]
        if depth > len(data.shape) or is_contradiction(updates.shape, replaced):
            return None
    return (TensorType(data.dtype, data.shape),)


@type_rule("TensorScatter")
def _tensor_scatter(node: Node, contents: ShapeContent) -> Types:
    cache = operand(node, 0)
    return None if cache is None else (TensorType(cache.dtype, cache.shape),)


@type_rule("OneHot")
def _one_hot(node: Node, contents: ShapeContent) -> Types:
    indices, values = operand(node, 0), operand(node, 2)
    if indices is None or values is None:
        return None
    numbers = contents.numbers(node, 1)
    depth = contents.dims(node, 1) if numbers is None else [int(number) for number in numbers]
    axis = axis_of(node.attributes.get("axis", -1), len(indices.shape) + 1)
    if axis is None or depth is None or len(depth) != 1:
        return None
    if isinstance(depth[0], int) and depth[0] < 0:
        return None
    shape = indices.shape[:axis] + tuple(depth) + indices.shape[axis:]
    return (TensorType(values.dtype, shape),)


@type_rule("TopK")
def _top_k(node: Node, contents: ShapeContent) -> Types:
    x, count = operand(node, 0), contents.dims(node, 1)
    axis = None if x is None else axis_of(node.attributes.get("axis", -1), len(x.shape))
    if x is None or axis is None or count is None or len(count) != 1:
        return None
    length, kept = x.shape[axis], count[0]
    if isinstance(kept, int) and (kept < 0 or (isinstance(length, int) and kept > length)):
        return None
    found = with_dims(x.shape, [axis], [kept])
    return TensorType(x.dtype, found), TensorType(DType.INT64, found)
