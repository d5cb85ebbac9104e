"""Operators that move elements: rows may get another axis, and stay in order and in one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph import Node, Value
from .size import BATCH, ONE, Size, product
from .traced_value import (
    NotApartError,
    Rule,
    Traced,
    axis_at,
    given,
    in_rows,
    integer,
    known_integers,
    need_free,
    result_dims,
)

__all__ = ["MOVEMENT_RULES"]

Inputs = Sequence[Traced | None]

_TO_THE_END = 2**31 - 1
_NO_FACTOR = "along the axis of the rows it does not keep every row in its place"


def _regrouped(x: Traced, dims: tuple[Size, ...]) -> Traced:
    """See the same elements in other dims: what is before the batch has to stay before it."""
    places = [axis for axis, dim in enumerate(dims) if dim.has_batch]
    if len(places) != 1 or dims[places[0]].symbols.count(BATCH) != 1:
        raise NotApartError("its target does not have the batch as one of its lengths")
    (place,) = places
    if product(dims[:place]) != product(x.shape[: x.row_axis]):
        raise NotApartError("it mixes the rows with what is before them")
    return Traced(dims, place)


def _reshape(node: Node, inputs: Inputs) -> Traced:
    x, target = in_rows(inputs), given(inputs, 1)
    if target is None or target.axis is not None or target.numbers is None:
        raise NotApartError("its target is not known")
    numbers = list(target.numbers)
    if not integer(node, "allowzero", 0):
        if any(dim == Size(0) and axis >= x.rank for axis, dim in enumerate(numbers)):
            raise NotApartError("its target copies lengths that its input does not have")
        numbers = [x.shape[axis] if dim == Size(0) else dim for axis, dim in enumerate(numbers)]
    rest = [axis for axis, dim in enumerate(numbers) if dim == Size(-1)]
    if rest:
        others = product(dim for dim in numbers if dim != Size(-1))
        left = product(x.shape).divided_by(others)
        if left is None and not others.has_batch:
            raise NotApartError("its target is not known to end where a row ends")
        if left is not None:
            numbers[rest[0]] = left
        else:
            numbers[rest[0]] = result_dims(node.outputs[0], len(numbers), {})[rest[0]]
    return _regrouped(x, tuple(numbers))


def _flatten(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    axis = axis_at(integer(node, "axis", 1), x.rank)
    return _regrouped(x, (product(x.shape[:axis]), product(x.shape[axis:])))


def _squeeze(node: Node, inputs: Inputs) -> Traced:
    x, axes = in_rows(inputs), known_integers(given(inputs, 1))
    if axes is None:
        raise NotApartError("its axes are not given, so that it would drop a batch of one row")
    gone = {axis_at(axis, x.rank) for axis in axes}
    if x.axis in gone:
        raise NotApartError("it drops the axis of the rows")
    dims = tuple(dim for axis, dim in enumerate(x.shape) if axis not in gone)
    return Traced(dims, x.row_axis - sum(axis < x.row_axis for axis in gone))


def _unsqueeze(node: Node, inputs: Inputs) -> Traced:
    x, axes = in_rows(inputs), known_integers(given(inputs, 1))
    if axes is None:
        raise NotApartError("its axes are not known")
    rank = x.rank + len(axes)
    fresh = {axis_at(axis, rank) for axis in axes}
    old = [axis for axis in range(rank) if axis not in fresh]
    known = dict(zip(old, x.shape, strict=True))
    dims = tuple(known.get(axis, ONE) for axis in range(rank))
    return Traced(dims, old[x.row_axis])


def _transpose(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    order = list(node.attributes.get("perm") or reversed(range(x.rank)))
    return Traced(tuple(x.shape[axis] for axis in order), order.index(x.row_axis))


def _concat(node: Node, inputs: Inputs) -> Traced:
    first = in_rows(inputs)
    axis = axis_at(integer(node, "axis", 0), first.rank)
    parts = [in_rows(inputs, index) for index in range(len(inputs))]
    if axis == first.axis:
        raise NotApartError("it joins its inputs along the axis of the rows")
    if any((part.axis, part.rows) != (first.axis, first.rows) for part in parts):
        raise NotApartError("the rows of its inputs are along different axes")
    known = {place: dim for place, dim in enumerate(first.shape) if place != axis}
    lengths = [part.shape[axis].known for part in parts]
    if None not in lengths:
        known[axis] = Size(sum(length for length in lengths if length is not None))
    return Traced(result_dims(node.outputs[0], first.rank, known), first.axis)


def _split(node: Node, inputs: Inputs) -> list[Traced]:
    x = in_rows(inputs)
    need_free(inputs)
    axis = axis_at(integer(node, "axis", 0), x.rank)
    if axis == x.axis:
        raise NotApartError("it splits the axis of the rows")
    return [_changed(x, value, {axis}) for value in node.outputs]


def _slice(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    need_free(inputs, 1, 3, 4)
    starts = given(inputs, 1)
    count = None if starts is None or starts.numbers is None else len(starts.numbers)
    axes = known_integers(given(inputs, 3))
    if given(inputs, 3) is None and count is not None:
        axes = list(range(count))
    if axes is None:
        raise NotApartError("its axes are not known")
    places = [axis_at(axis, x.rank) for axis in axes]
    if x.axis in places and not _takes_all(inputs, places.index(x.row_axis), x.rows):
        raise NotApartError(_NO_FACTOR)
    return _changed(x, node.outputs[0], set(places) - {x.row_axis})


def _takes_all(inputs: Inputs, place: int, rows: Size) -> bool:
    """True if a Slice takes its axis at this place whole, and forwards."""
    begin, end, step = (_number(inputs, index, place) for index in (1, 2, 4))
    is_to_the_end = end == rows or (end is not None and (end.known or 0) >= _TO_THE_END)
    return begin == Size(0) and is_to_the_end and (step == ONE or given(inputs, 4) is None)


def _number(inputs: Inputs, index: int, place: int) -> Size | None:
    found = given(inputs, index)
    return None if found is None or found.numbers is None else found.numbers[place]


def _changed(x: Traced, value: Value, axes: set[int]) -> Traced:
    """Keep the rows while lengths along other axes change."""
    known = {axis: dim for axis, dim in enumerate(x.shape) if axis not in axes}
    return Traced(result_dims(value, x.rank, known), x.axis)


def _expand(node: Node, inputs: Inputs) -> Traced:
    data, target = inputs[0], inputs[1]
    if data is None or target is None or target.axis is not None or target.numbers is None:
        raise NotApartError("its target is not known")
    rank = max(data.rank, len(target.numbers))
    own = (*[ONE] * (rank - data.rank), *data.shape)
    wanted = (*[ONE] * (rank - len(target.numbers)), *target.numbers)
    if data.axis is None:
        places = [axis for axis, dim in enumerate(wanted) if dim.has_batch]
        return _spread(own, wanted, places)
    place = data.row_axis + rank - data.rank
    if wanted[place] not in (ONE, own[place]):
        raise NotApartError("its target has another length than the rows")
    if any(dim.has_batch for axis, dim in enumerate(wanted) if axis != place):
        raise NotApartError("its target has the batch twice")
    dims = (_larger(*pair) for pair in zip(own, wanted, strict=True))
    known = {axis: dim for axis, dim in enumerate(dims) if dim is not None}
    return Traced(result_dims(node.outputs[0], rank, {**known, place: own[place]}), place)


def _spread(own: Sequence[Size], wanted: Sequence[Size], places: Sequence[int]) -> Traced:
    """Repeat what is the same for all rows, once a row."""
    if len(places) != 1 or wanted[places[0]].symbols.count(BATCH) != 1:
        raise NotApartError("it makes more than one axis as long as the batch")
    (place,) = places
    if own[place] != ONE:
        raise NotApartError(_NO_FACTOR)
    dims = tuple(
        two if one == ONE or axis == place else one
        for axis, (one, two) in enumerate(zip(own, wanted, strict=True))
    )
    return Traced(dims, place)


def _larger(one: Size, other: Size) -> Size | None:
    if one == ONE or other == ONE:
        return other if one == ONE else one
    return one if one == other or one.known is not None else None


def _tile(node: Node, inputs: Inputs) -> Traced:
    data, repeats = inputs[0], inputs[1]
    if data is None or repeats is None or repeats.axis is not None or repeats.numbers is None:
        raise NotApartError("its repeats are not known")
    dims = tuple(one * two for one, two in zip(data.shape, repeats.numbers, strict=True))
    if data.axis is None:
        places = [axis for axis, dim in enumerate(repeats.numbers) if dim.has_batch]
        ones = [ONE if axis in places else dim for axis, dim in enumerate(dims)]
        if any(data.shape[axis] != ONE for axis in places):
            raise NotApartError(_NO_FACTOR)
        return _spread(ones, dims, places)
    if repeats.counts_rows or repeats.numbers[data.row_axis] != ONE:
        raise NotApartError(_NO_FACTOR)
    return Traced(dims, data.axis)


def _constant_of_shape(node: Node, inputs: Inputs) -> Traced:
    counts = inputs[0]
    if counts is None or counts.axis is not None or counts.numbers is None:
        raise NotApartError("its shape is not known")
    places = [axis for axis, dim in enumerate(counts.numbers) if dim.has_batch]
    return _spread([ONE] * len(counts.numbers), counts.numbers, places)


def _range(node: Node, inputs: Inputs) -> Traced:
    start, limit, step = (None if item is None else item.numbers for item in inputs)
    if start != (Size(0),) or step != (ONE,) or not limit or limit[0].symbols.count(BATCH) != 1:
        raise NotApartError("it counts rows in another way than from 0 by 1")
    return Traced(limit, 0)


def _pad(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    need_free(inputs)
    pads = known_integers(given(inputs, 1))
    axes = known_integers(given(inputs, 3))
    if axes is None and given(inputs, 3) is None:
        axes = list(range(x.rank))
    if pads is None or axes is None:
        raise NotApartError("its pads are not known")
    places = [axis_at(axis, x.rank) for axis in axes]
    of_rows = [pads[i :: len(places)] for i, place in enumerate(places) if place == x.axis]
    if any(any(pair) for pair in of_rows):
        raise NotApartError(_NO_FACTOR)
    return _changed(x, node.outputs[0], set(places) - {x.row_axis})


def _resize(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    need_free(inputs, 1, 2)
    axes = node.attributes.get("axes")
    places = list(range(x.rank)) if axes is None else [axis_at(int(a), x.rank) for a in axes]
    if x.axis in places:
        _check_resized_rows(node, inputs, x, places.index(x.row_axis))
    return _changed(x, node.outputs[0], set(places) - {x.row_axis})


def _check_resized_rows(node: Node, inputs: Inputs, x: Traced, place: int) -> None:
    scales = node.input_at(2)
    sizes = given(inputs, 3)
    if sizes is not None:
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        numbers = sizes.numbers if sizes.axis is None else None
        if policy == "stretch" and numbers is not None and numbers[place] == x.rows:
            return
    elif scales is not None and scales.constant is not None:
        array = scales.constant.reshape(-1)
        if place < array.size and float(array[place]) == 1.0:
            return
    raise NotApartError(_NO_FACTOR)


def _blocks(node: Node, inputs: Inputs) -> Traced:
    """Follow DepthToSpace and SpaceToDepth, which change all axes but the first."""
    x = in_rows(inputs)
    if x.axis != 0:
        raise NotApartError(f"its rows are along axis {x.axis}, not 0")
    return _changed(x, node.outputs[0], set(range(1, x.rank)))


def _trilu(node: Node, inputs: Inputs) -> Traced:
    x = in_rows(inputs)
    need_free(inputs)
    if x.row_axis >= x.rank - 2:
        raise NotApartError("its triangle lies in the axis of the rows")
    return Traced(x.dims, x.axis)


MOVEMENT_RULES: Mapping[str, Rule] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _blocks,
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _blocks,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
"""By operator of ONNX."""
