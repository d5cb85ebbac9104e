"""Operators that join or pick what lies along axes of their own: sums, norms, picks, scans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph import Node
from .elementwise_rules import broadcast
from .size import ONE
from .traced_value import (
    NotApartError,
    Rule,
    Traced,
    axis_at,
    given,
    in_rows,
    integer,
    known_integers,
    leading_rows,
    need_free,
    result_dims,
)

__all__ = ["AXIS_RULES"]

Inputs = Sequence[Traced | None]

_OVER_ROWS = "it joins values of different rows"
_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


def _refuse_over_rows(x: Traced, axes: Sequence[int]) -> None:
    if x.axis in [axis_at(axis, x.rank) for axis in axes]:
        raise NotApartError(_OVER_ROWS)


def _without(x: Traced, axes: Sequence[int], *, keeps: bool) -> Traced:
    """Leave out reduced axes, or make them 1."""
    _refuse_over_rows(x, axes)
    gone = {axis_at(axis, x.rank) for axis in axes}
    if keeps:
        dims = tuple(ONE if axis in gone else dim for axis, dim in enumerate(x.shape))
        return Traced(dims, x.axis)
    dims = tuple(dim for axis, dim in enumerate(x.shape) if axis not in gone)
    return Traced(dims, x.row_axis - sum(axis < x.row_axis for axis in gone))


def _reduced(node: Node, inputs: Inputs) -> Traced:
    x, listed = in_rows(inputs), given(inputs, 1)
    axes = node.attributes.get("axes") or known_integers(listed)
    if listed is not None and axes is None:
        raise NotApartError("its axes are not known")
    if not axes:
        if not integer(node, "noop_with_empty_axes", 0):
            raise NotApartError(_OVER_ROWS)
        return Traced(x.dims, x.axis)
    return _without(x, list(axes), keeps=bool(integer(node, "keepdims", 1)))


def _extreme_place(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    return _without(x, [integer(node, "axis", 0)], keeps=bool(integer(node, "keepdims", 1)))


def _along(default: int) -> Rule:
    """Make the rule of an operator that keeps the shape and works along one axis."""

    def rule(node: Node, inputs: Inputs) -> Traced:
        x = in_rows(inputs)
        need_free(inputs)
        _refuse_over_rows(x, [integer(node, "axis", default)])
        return Traced(x.dims, x.axis)

    return rule


def _scanned(node: Node, inputs: Inputs) -> Traced:
    x, axes = in_rows(inputs), known_integers(given(inputs, 1))
    if axes is None:
        raise NotApartError("its axis is not known")
    _refuse_over_rows(x, axes)
    return Traced(x.dims, x.axis)


def _normalized_to_the_end(node: Node, inputs: Inputs) -> Traced:
    """Follow norms of the last axes; what they are scaled by broadcasts."""
    x = in_rows(inputs)
    first = axis_at(integer(node, "axis", -1), x.rank)
    _refuse_over_rows(x, range(first, x.rank))
    broadcast(node, [item for item in inputs if item is not None])
    return Traced(x.dims, x.axis)


def _normalized_images(node: Node, inputs: Inputs) -> Traced:
    """Follow norms of one image, by parameters that serve all."""
    x = leading_rows(inputs)
    need_free(inputs)
    return Traced(x.dims, x.axis)


def _batch_normalized(node: Node, inputs: Inputs) -> Traced:
    if integer(node, "training_mode", 0):
        raise NotApartError("it is in training mode, which takes the mean of all rows")
    return _normalized_images(node, inputs)


def _normalized_over(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    _refuse_over_rows(x, list(node.attributes.get("axes") or (0, 2, 3)))
    return Traced(x.dims, x.axis)


def _gather(node: Node, inputs: Inputs) -> Traced:
    data, indices = inputs[0], inputs[1]
    assert data is not None
    assert indices is not None
    axis = axis_at(integer(node, "axis", 0), data.rank)
    dims = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    if data.axis is None:
        return Traced(dims, axis + in_rows(inputs, 1).row_axis)
    if indices.axis is not None:
        raise NotApartError("both of its inputs have rows")
    if data.axis == axis:
        raise NotApartError("it picks some of the rows")
    moved = indices.rank - 1 if data.axis > axis else 0
    return Traced(dims, data.axis + moved)


def _gather_elements(node: Node, inputs: Inputs) -> Traced:
    data, indices = in_rows(inputs), in_rows(inputs, 1)
    _refuse_over_rows(data, [integer(node, "axis", 0)])
    if (data.axis, data.rows) != (indices.axis, indices.rows):
        raise NotApartError("the rows of its inputs are along different axes")
    return Traced(indices.dims, indices.axis)


def _gather_nd(node: Node, inputs: Inputs) -> Traced:
    data, indices = inputs[0], in_rows(inputs, 1)
    assert data is not None
    shared = integer(node, "batch_dims", 0)
    width = indices.shape[-1].known
    if indices.axis == indices.rank - 1 or width is None:
        raise NotApartError("how many axes it picks from is not known")
    dims = (*indices.shape[:-1], *data.shape[shared + width :])
    if data.axis is None:
        if indices.row_axis < shared:
            raise NotApartError("only one of its inputs has rows")
        return Traced(dims, indices.axis)
    is_shared = data.axis < shared and data.axis == indices.axis and data.rows == indices.rows
    if not is_shared:
        raise NotApartError("it picks some of the rows")
    return Traced(dims, indices.axis)


def _top(node: Node, inputs: Inputs) -> list[Traced]:
    x = in_rows(inputs)
    need_free(inputs)
    axis = axis_at(integer(node, "axis", -1), x.rank)
    _refuse_over_rows(x, [axis])
    known = {place: dim for place, dim in enumerate(x.shape) if place != axis}
    return [Traced(result_dims(value, x.rank, known), x.axis) for value in node.outputs]


def _one_hot(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    need_free(inputs)
    axis = axis_at(integer(node, "axis", -1), x.rank + 1)
    old = [place for place in range(x.rank + 1) if place != axis]
    known = dict(zip(old, x.shape, strict=True))
    return Traced(result_dims(node.outputs[0], x.rank + 1, known), old[x.row_axis])


AXIS_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "ArgMax": _extreme_place,
    "ArgMin": _extreme_place,
    "BatchNormalization": _batch_normalized,
    "CumSum": _scanned,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "GroupNormalization": _normalized_images,
    "Hardmax": _along(-1),
    "InstanceNormalization": _normalized_images,
    "LRN": _normalized_images,
    "LayerNormalization": _normalized_to_the_end,
    "LogSoftmax": _along(-1),
    "LpNormalization": _along(-1),
    "MeanVarianceNormalization": _normalized_over,
    "OneHot": _one_hot,
    "RMSNormalization": _normalized_to_the_end,
    "Softmax": _along(-1),
    "TopK": _top,
}
"""By operator of ONNX."""
