"""Types of what is picked and put by index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...graph import DType, Node, Shape, TensorType, shape_text
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import axis_of, is_contradiction, product, with_dims
from ..operands import (
    Operand,
    integer,
    operand,
    require_rank,
    require_same_type,
    require_shape,
    require_type,
)
from ..rules import type_rule

Types = Sequence[TensorType] | None

_INDICES = (DType.INT32, DType.INT64)


@type_rule("Gather")
def _gather(node: Node, contents: ShapeContent) -> Types:
    data, indices = operand(node, 0), operand(node, 1)
    if data is None or indices is None:
        return None
    require_type("indices", indices, _INDICES)
    axis = axis_of(node.attributes.get("axis", 0), len(data.shape))
    result = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
    _require_some(result, data.shape, (axis,))
    return (TensorType(data.dtype, result),)


def _require_some(result: Shape, data: Shape, axes: Iterable[int]) -> None:
    """Raise for a result with elements that are picked along an axis without any."""
    empty = next((axis for axis in axes if data[axis] == 0), None)
    if empty is not None and all(isinstance(dim, int) and dim > 0 for dim in result):
        raise ContradictionError(
            f"there is nothing to pick along axis {empty} of the data of shape {shape_text(data)}"
        )


def _require_inside(indices: Shape, data: Shape, axis: int) -> None:
    """Raise for indices that are longer than the data along another axis than that they count."""
    for place, (dim, length) in enumerate(zip(indices, data, strict=True)):
        if isinstance(dim, int) and isinstance(length, int) and place != axis and dim > length:
            raise ContradictionError(
                f"the indices of shape {shape_text(indices)} reach beyond axis {place} of the data "
                f"of shape {shape_text(data)}"
            )


@type_rule("GatherElements")
def _gather_elements(node: Node, contents: ShapeContent) -> Types:
    data, indices = operand(node, 0), operand(node, 1)
    if data is None or indices is None:
        return None
    require_type("indices", indices, _INDICES)
    require_rank("indices", indices, len(data.shape))
    axis = axis_of(node.attributes.get("axis", 0), len(data.shape))
    _require_inside(indices.shape, data.shape, axis)
    _require_some(indices.shape, data.shape, (axis,))
    return (TensorType(data.dtype, indices.shape),)


def _depth(data: Operand, indices: Operand, batch: int) -> int | None:
    """Return how many axes of the data one index is for: the length of the indices' last axis."""
    require_type("indices", indices, (DType.INT64,))
    require_rank("indices", indices, 1, -1)
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        return None
    if not 1 <= depth <= len(data.shape) - batch:
        raise ContradictionError(
            f"each index has {depth} numbers, and there are {len(data.shape) - batch} axes for them"
        )
    return depth


@type_rule("GatherND")
def _gather_nd(node: Node, contents: ShapeContent) -> Types:
    """The last axis of the indices holds one index for each axis of the data after the batch's."""
    x, places, batch = operand(node, 0), operand(node, 1), integer(node, "batch_dims", 0)
    if x is None or places is None or batch is None:
        return None
    data, indices = x.shape, places.shape
    if not 0 <= batch < min(len(data), len(indices)):
        raise ContradictionError(
            f"data of shape {shape_text(data)} and indices of shape {shape_text(indices)} have no "
            f"{batch} axes of a batch and another one"
        )
    depth = _depth(x, places, batch)
    if is_contradiction(data[:batch], indices[:batch]):
        raise ContradictionError(
            f"the first {batch} axes of {shape_text(data)} and {shape_text(indices)} have to be "
            f"the same"
        )
    if depth is None:
        return None
    result = indices[:-1] + data[batch + depth :]
    _require_some(result, data, range(batch, batch + depth))
    return (TensorType(x.dtype, result),)


@type_rule("ScatterElements")
def _scatter_elements(node: Node, contents: ShapeContent) -> Types:
    data, indices, updates = operand(node, 0), operand(node, 1), operand(node, 2)
    if data is None or indices is None or updates is None:
        return None
    require_type("indices", indices, _INDICES)
    require_same_type("data and updates", data, updates)
    require_rank("indices", indices, len(data.shape))
    require_shape("the updates", updates, *indices.shape)
    axis = axis_of(node.attributes.get("axis", 0), len(data.shape))
    _require_inside(indices.shape, data.shape, axis)
    return (TensorType(data.dtype, data.shape),)


@type_rule("ScatterND")
def _scatter_nd(node: Node, contents: ShapeContent) -> Types:
    data, indices, updates = operand(node, 0), operand(node, 1), operand(node, 2)
    if data is None or indices is None or updates is None:
        return None
    require_same_type("data and updates", data, updates)
    depth = _depth(data, indices, 0)
    if depth is not None:
        require_shape("the updates", updates, *indices.shape[:-1], *data.shape[depth:])
    return (TensorType(data.dtype, data.shape),)


@type_rule("TensorScatter")
def _tensor_scatter(node: Node, contents: ShapeContent) -> Types:
    """The update is as the cache, and no longer than it along the axis; one place a sequence."""
    cache, update, places = operand(node, 0), operand(node, 1), operand(node, 2)
    if cache is None or update is None:
        return None
    require_same_type("cache and update", cache, update)
    axis = axis_of(node.attributes.get("axis", -2), len(cache.shape))
    if axis == 0:
        raise ContradictionError("its axis is that of the batch")
    require_rank("the update", update, len(cache.shape))
    require_shape("the update", update, *with_dims(cache.shape, [axis], [None]))
    length, added = cache.shape[axis], update.shape[axis]
    if isinstance(length, int) and isinstance(added, int) and added > length:
        raise ContradictionError(f"the update of length {added} does not fit a cache of {length}")
    if places is not None:
        require_type("places to write at", places, (DType.INT64,))
        require_shape("the places to write at", places, cache.shape[0])
    return (TensorType(cache.dtype, cache.shape),)


@type_rule("OneHot")
def _one_hot(node: Node, contents: ShapeContent) -> Types:
    indices, deep, values = operand(node, 0), operand(node, 1), operand(node, 2)
    if indices is None or deep is None or values is None:
        return None
    require_shape("what is off and on", values, 2)
    axis = axis_of(node.attributes.get("axis", -1), len(indices.shape) + 1)
    count = product(deep.shape)
    if len(deep.shape) > 1 or (isinstance(count, int) and count != 1):
        raise ContradictionError(f"the depth is one number, and has {shape_text(deep.shape)}")
    numbers = contents.numbers(node, 1)
    depth = contents.dims(node, 1) if numbers is None else [int(number) for number in numbers]
    if depth is None or len(depth) != 1:
        return None
    if isinstance(depth[0], int) and depth[0] < 0:
        raise ContradictionError(f"its depth is {depth[0]}, below zero")
    shape = indices.shape[:axis] + tuple(depth) + indices.shape[axis:]
    return (TensorType(values.dtype, shape),)


@type_rule("TopK")
def _top_k(node: Node, contents: ShapeContent) -> Types:
    x, k = operand(node, 0), operand(node, 1)
    if x is None or k is None:
        return None
    axis = axis_of(node.attributes.get("axis", -1), len(x.shape))
    require_type("counts", k, (DType.INT64,))
    count = contents.dims(node, 1)
    if count is None:
        return None
    if len(count) != 1:
        raise ContradictionError(f"it has {len(count)} counts of elements to keep")
    length, kept = x.shape[axis], count[0]
    if isinstance(kept, int) and (kept < 0 or (isinstance(length, int) and kept > length)):
        raise ContradictionError(f"it is to keep {kept} elements of the {length} along axis {axis}")
    found = with_dims(x.shape, [axis], [kept])
    return TensorType(x.dtype, found), TensorType(DType.INT64, found)
