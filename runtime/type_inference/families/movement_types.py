"""Types of what moves elements: other shapes, other orders, other places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph import Dim, DType, Node, Shape, TensorType, shape_text
from ..content.list_content import sliced_length, split_lengths
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import (
    agree,
    axes_of,
    axis_of,
    broadcast,
    ceil_divide,
    divide,
    merge,
    product,
    total,
    with_dims,
)
from ..operands import (
    integer,
    integers,
    operand,
    require_rank,
    require_same_type,
    require_shape,
    require_type,
)
from ..rules import type_rule
from .reshaped_lengths import reshaped
from .resized_lengths import resized_by_scales, resized_to_sizes

Types = Sequence[TensorType] | None

_FAR = 2**31 - 1
"""What exporters write for "to the end"; no axis is longer."""


def _types(node: Node, shape: Shape | None) -> Types:
    """Return one output of the first input's element type; None for no shape."""
    data = operand(node, 0)
    if data is None or shape is None:
        return None
    for dim in shape:
        if isinstance(dim, int) and dim < 0:
            raise ContradictionError(f"its result would have a length of {dim}")
    return (TensorType(data.dtype, shape),)


def _shape(node: Node) -> Shape | None:
    data = operand(node, 0)
    return None if data is None else data.shape


def _check_list(
    node: Node, index: int, what: str, *more: DType, ranks: Sequence[int] = (1,)
) -> None:
    """Raise unless an input is a list of int64, or of one of more types, if it is there."""
    given = operand(node, index)
    if given is not None:
        require_type(f"the numbers of {what}", given, (DType.INT64, *more))
        require_rank(what, given, *ranks)


def _check_axes(node: Node) -> None:
    """Raise unless the second input is a list of axes; ONNX's own functions write one as scalar."""
    _check_list(node, 1, "the list of axes", ranks=(0, 1))


def _check_count(node: Node, index: int, what: str, wanted: int) -> None:
    """Raise unless a list has ``wanted`` numbers; also one too long for its content to be known."""
    given = operand(node, index)
    if given is not None and not agree(product(given.shape), wanted):
        raise ContradictionError(f"it has {product(given.shape)} {what}, and not {wanted}")


def _count(node: Node, index: int) -> int | None:
    """Return how many numbers a list has, whatever they are; None where that is not known."""
    given = operand(node, index)
    count = None if given is None else product(given.shape)
    return count if isinstance(count, int) else None


def _given_axes(
    node: Node, contents: ShapeContent, index: int, default: int | None
) -> list[int] | None:
    """Read an input of axes; where it is left out, they are the first ones."""
    if operand(node, index) is None:
        return None if default is None else list(range(default))
    return contents.integers(node, index)


def _check_most(node: Node, index: int, what: str, shape: Shape | None) -> None:
    """Raise if a list has more numbers than there are axes; also one too long to be read."""
    given = operand(node, index)
    count = None if given is None else product(given.shape)
    if shape is not None and isinstance(count, int) and count > len(shape):
        raise ContradictionError(f"it has {count} {what}, and a tensor of {len(shape)} axes")


@type_rule("Reshape")
def _reshape(node: Node, contents: ShapeContent) -> Types:
    _check_list(node, 1, "the new shape")
    shape, target = _shape(node), contents.dims(node, 1)
    allow_zero = integer(node, "allowzero", 0)
    if shape is None or target is None or allow_zero is None:
        return None
    return _types(node, reshaped(shape, target, bool(allow_zero)))


@type_rule("Flatten")
def _flatten(node: Node, contents: ShapeContent) -> Types:
    shape, axis = _shape(node), integer(node, "axis", 1)
    if shape is None or axis is None:
        return None
    if not -len(shape) <= axis <= len(shape):
        raise ContradictionError(f"its axis is {axis}, and {shape_text(shape)} has {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return _types(node, (product(shape[:axis]), product(shape[axis:])))


@type_rule("Squeeze")
def _squeeze(node: Node, contents: ShapeContent) -> Types:
    _check_axes(node)
    shape = _shape(node)
    if shape is None:
        return None
    if operand(node, 1) is None:
        if not all(isinstance(dim, int) for dim in shape):
            return None
        return _types(node, tuple(dim for dim in shape if dim != 1))
    given = contents.integers(node, 1)
    if given is None:
        return None
    axes = axes_of(given, len(shape))
    for axis in axes:
        if not agree(shape[axis], 1):
            raise ContradictionError(
                f"axis {axis} of {shape_text(shape)} has the length {shape[axis]}, and only axes "
                f"of length 1 can be taken out"
            )
    return _types(node, tuple(dim for axis, dim in enumerate(shape) if axis not in axes))


@type_rule("Unsqueeze")
def _unsqueeze(node: Node, contents: ShapeContent) -> Types:
    _check_axes(node)
    shape, given = _shape(node), contents.integers(node, 1)
    if shape is None or given is None:
        return None
    axes = axes_of(given, len(shape) + len(given))
    dims: list[Dim] = list(shape)
    for axis in sorted(axes):
        dims.insert(axis, 1)
    return _types(node, tuple(dims))


@type_rule("Transpose")
def _transpose(node: Node, contents: ShapeContent) -> Types:
    shape = _shape(node)
    if shape is None:
        return None
    if "perm" in node.attributes:
        given = integers(node, "perm", len(shape))
        if given is None:
            return None
        if sorted(given) != list(range(len(shape))):
            raise ContradictionError(f"its perm {given} is no order of {len(shape)} axes")
        return _types(node, tuple(shape[axis] for axis in given))
    return _types(node, shape[::-1])


@type_rule("Concat")
def _concat(node: Node, contents: ShapeContent) -> Types:
    first = operand(node, 0)
    if first is None:
        return None
    axis = axis_of(node.attributes.get("axis"), len(first.shape))
    lengths, rest = [first.shape[axis]], with_dims(first.shape, [axis], [None])
    for index in range(1, len(node.inputs)):
        x = operand(node, index)
        if x is None:
            return None
        require_same_type("its inputs", first, x)
        require_rank("an input", x, len(rest))
        lengths.append(x.shape[axis])
        rest = merge(rest, with_dims(x.shape, [axis], [None]))
    return _types(node, with_dims(rest, [axis], [total(lengths)]))


@type_rule("Split")
def _split(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    if x is None:
        return None
    _check_list(node, 1, "the list of lengths")
    axis = axis_of(node.attributes.get("axis", 0), len(x.shape))
    parts, known = contents.dims(node, 1), contents.integers(node, 1)
    count, length = len(node.outputs), x.shape[axis]
    _check_parts(node, length, parts)
    if parts is None and operand(node, 1) is not None:
        return None
    found: Sequence[Dim] | None
    if isinstance(length, int) and (parts is None or known is not None):
        found = split_lengths(node, length, known)
    else:
        found = parts if parts is not None else [length] if count == 1 else [None] * count
    if found is None:
        return None
    return [TensorType(x.dtype, with_dims(x.shape, [axis], [part])) for part in found]


def _check_parts(node: Node, length: Dim, parts: Shape | None) -> None:
    """Raise unless an axis of this length may be split into these, or into equal parts."""
    count = len(node.outputs)
    declared = integer(node, "num_outputs", count)
    if declared != count:
        raise ContradictionError(f"its num_outputs is {declared}, and it has {count} outputs")
    if parts is None:
        room = length if isinstance(length, int) and operand(node, 1) is None else None
        if room is not None and ceil_divide(room, count) * (count - 1) > room:
            raise ContradictionError(f"a length of {length} cannot be {count} equal parts")
        return
    if len(parts) != count:
        raise ContradictionError(f"it has {len(parts)} lengths for {count} outputs")
    least = sum(part for part in parts if isinstance(part, int))
    is_known = all(isinstance(part, int) for part in parts)
    is_bad = any(isinstance(part, int) and part < 0 for part in parts)
    if isinstance(length, int):
        is_bad = is_bad or least > length or (is_known and least != length)
    if is_bad:
        raise ContradictionError(f"a length of {length} cannot be split into {shape_text(parts)}")


@type_rule("Slice")
def _slice(node: Node, contents: ShapeContent) -> Types:
    shape = _shape(node)
    for index, what in enumerate(("starts", "ends", "axes", "steps"), 1):
        _check_list(node, index, what, DType.INT32)
        _check_most(node, index, what, shape)
    starts, ends = contents.dims(node, 1), contents.dims(node, 2)
    if shape is None:
        return None
    given = _given_axes(node, contents, 3, _count(node, 1))
    axes = list(range(len(shape))) if given is None else axes_of(given, len(shape))
    steps = contents.integers(node, 4)
    if operand(node, 4) is None and starts is not None:
        steps = [1] * len(starts)
    if given is None or starts is None or ends is None or steps is None:
        return _types(node, with_dims(shape, axes, [None] * len(axes)))
    counts = [len(starts), len(ends), len(axes), len(steps)]
    if len(set(counts)) > 1:
        raise ContradictionError(f"it has {counts} starts, ends, axes and steps: not as many")
    if 0 in steps:
        raise ContradictionError("a step is 0, which leads nowhere")
    old = [shape[axis] for axis in axes]
    return _types(node, with_dims(shape, axes, list(map(_sliced, old, starts, ends, steps))))


def _sliced(dim: Dim, start: Dim, end: Dim, step: int) -> Dim:
    if isinstance(dim, int) and isinstance(start, int) and isinstance(end, int):
        return sliced_length(dim, start, end, step)
    if dim is None:
        return None
    if step == 1 and start == 0:
        return dim if end == dim or (isinstance(end, int) and end >= _FAR) else None
    if step == -1 and isinstance(end, int) and isinstance(start, int) and end <= -_FAR:
        return dim if start == -1 or start >= _FAR else None
    return None


@type_rule("Expand")
def _expand(node: Node, contents: ShapeContent) -> Types:
    _check_list(node, 1, "the shape to expand to")
    shape, target = _shape(node), contents.dims(node, 1)
    if target is None and (count := _count(node, 1)) is not None:
        target = (None,) * count
    if shape is None or target is None:
        return None
    if any(isinstance(dim, int) and dim < 0 for dim in target):
        raise ContradictionError(f"{shape_text(target)} is no shape to expand to")
    return _types(node, broadcast((shape, target)))


@type_rule("Tile")
def _tile(node: Node, contents: ShapeContent) -> Types:
    _check_list(node, 1, "the list of repeats")
    shape, repeats = _shape(node), contents.dims(node, 1)
    if shape is None:
        return None
    _check_count(node, 1, "repeats", len(shape))
    if repeats is None:
        repeats = (None,) * len(shape)
    if any(isinstance(n, int) and n < 0 for n in repeats):
        raise ContradictionError(
            f"{shape_text(shape)} cannot be repeated {shape_text(repeats)} times: a count from 0 "
            f"on is wanted for each axis"
        )
    return _types(node, tuple(product(pair) for pair in zip(shape, repeats, strict=True)))


@type_rule("Pad")
def _pad(node: Node, contents: ShapeContent) -> Types:
    _check_list(node, 1, "the list of pads")
    _check_list(node, 3, "the list of axes", DType.INT32)
    shape, pads, number = _shape(node), contents.dims(node, 1), operand(node, 2)
    is_read = node.text("mode", "constant") == "constant"
    if is_read and number is not None and not agree(product(number.shape), 1):
        raise ContradictionError(f"what it pads with is {shape_text(number.shape)}, not one number")
    if shape is None:
        return None
    given = _given_axes(node, contents, 3, len(shape))
    axes = None if given is None else axes_of(given, len(shape))
    if axes is not None:
        _check_count(node, 1, f"pads for the two ends of {len(axes)} axes", 2 * len(axes))
    if axes is None or pads is None:
        changed = range(len(shape)) if axes is None else axes
        return _types(node, with_dims(shape, changed, [None] * len(changed)))
    ends = zip(axes, pads, pads[len(axes) :], strict=False)
    padded = [total((shape[axis], before, after)) for axis, before, after in ends]
    fills = node.attributes.get("mode", "constant") == "constant"
    for axis, made, *both in zip(axes, padded, pads, pads[len(axes) :], strict=False):
        length = shape[axis]
        kept = total((length, *(min(pad, 0) for pad in both if isinstance(pad, int))))
        least = 0 if fills or not _adds(both) else 1
        found = made if fills else kept
        if isinstance(found, int) and found < least:
            what = "take more of" if found < 0 else "leave nothing to repeat of"
            raise ContradictionError(f"pads of {both} {what} axis {axis}, whose length is {length}")
    return _types(node, with_dims(shape, axes, padded))


def _adds(pads: Sequence[Dim]) -> bool:
    return any(isinstance(pad, int) and pad > 0 for pad in pads)


def _block_size(node: Node) -> int | None:
    """Return the attribute ``blocksize``, having looked whether the input is an image."""
    x, size = operand(node, 0), integer(node, "blocksize")
    if x is not None:
        require_rank("the input", x, 4)
    if size is not None and size < 1:
        raise ContradictionError(f"its blocksize is {size}, and at least 1 is wanted")
    return size


@type_rule("DepthToSpace")
def _depth_to_space(node: Node, contents: ShapeContent) -> Types:
    shape, size = _shape(node), _block_size(node)
    if shape is None or size is None:
        return None
    mode = node.attributes.get("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise ContradictionError(f"its mode is {mode!r}, and ONNX has DCR and CRD")
    batch, channels, height, width = shape
    if isinstance(channels, int) and channels % size**2:
        raise ContradictionError(f"{channels} channels are no multiple of {size} x {size}")
    area = (product((height, size)), product((width, size)))
    return _types(node, (batch, divide(channels, size**2), *area))


@type_rule("SpaceToDepth")
def _space_to_depth(node: Node, contents: ShapeContent) -> Types:
    shape, size = _shape(node), _block_size(node)
    if shape is None or size is None:
        return None
    batch, channels, height, width = shape
    if any(isinstance(dim, int) and dim % size for dim in (height, width)):
        raise ContradictionError(f"an image of {height} x {width} has no blocks of {size} x {size}")
    area = (divide(height, size), divide(width, size))
    return _types(node, (batch, product((channels, size**2)), *area))


@type_rule("Resize")
def _resize(node: Node, contents: ShapeContent) -> Types:
    """A region of interest changes no lengths: onnxruntime multiplies scales with whole axes."""
    shape = _shape(node)
    axes = _attribute_axes(node)
    if shape is None or axes is None:
        return None
    old = tuple(shape[axis] for axis in axes)
    mode = node.attributes.get("coordinate_transformation_mode")
    is_cropped = isinstance(mode, str) and mode == "tf_crop_and_resize"
    region = operand(node, 1)
    if is_cropped and region is not None and region.shape != (0,):  # else it is all of the input
        _check_numbers(node, 1, "bounds of the region", 2 * len(axes))
    if _is_given(node, 3):
        beside = operand(node, 2)
        if beside is not None and all(isinstance(dim, int) and dim for dim in beside.shape):
            raise ContradictionError("it has both sizes and scales")
        _check_list(node, 3, "the list of sizes")
        sizes = contents.dims(node, 3)
        if sizes is None:
            return _types(node, with_dims(shape, axes, (None,) * len(axes)))
        if len(sizes) != len(axes):
            raise ContradictionError(f"it has {len(sizes)} sizes for {len(axes)} axes")
        policy = str(node.attributes.get("keep_aspect_ratio_policy", "stretch"))
        return _types(node, with_dims(shape, axes, resized_to_sizes(old, sizes, policy)))
    _check_numbers(node, 2, "scales", len(axes))
    scales = contents.numbers(node, 2)
    if scales is None:
        return _types(node, with_dims(shape, axes, (None,) * len(axes)))
    return _types(node, with_dims(shape, axes, resized_by_scales(old, scales)))


def _check_numbers(node: Node, index: int, what: str, count: int) -> None:
    """Raise unless an input has ``count`` numbers, all finite, as far as they are known."""
    given = operand(node, index)
    if given is None:
        raise ContradictionError(f"it lacks its {what}")
    require_shape(f"the list of {what}", given, count)
    value = node.inputs[index]
    array = None if value is None else value.constant
    if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ContradictionError(f"its {what} {array.tolist()} have to be finite")


@type_rule("CenterCropPad")
def _center_crop_pad(node: Node, contents: ShapeContent) -> Types:
    shape, target, axes = _shape(node), contents.dims(node, 1), _attribute_axes(node)
    if shape is None or axes is None:
        return None
    if target is None:
        target = (None,) * len(axes)
    if len(target) != len(axes):
        raise ContradictionError(f"it has {len(target)} lengths for {len(axes)} axes")
    return _types(node, with_dims(shape, axes, target))


def _attribute_axes(node: Node) -> list[int] | None:
    shape = _shape(node)
    if shape is None:
        return None
    given = node.attributes.get("axes", list(range(len(shape))))
    return axes_of(given, len(shape)) if isinstance(given, list) else None


def _is_given(node: Node, index: int) -> bool:
    """Return whether an input is there; an empty list stands for one that is left out."""
    x = operand(node, index)
    return x is not None and 0 not in x.shape


@type_rule("ReverseSequence")
def _reverse_sequence(node: Node, contents: ShapeContent) -> Types:
    x, lengths = operand(node, 0), operand(node, 1)
    batch, time = integer(node, "batch_axis", 1), integer(node, "time_axis", 0)
    if x is None or lengths is None:
        return None
    require_rank("the input", x, 2, -1)
    if batch not in (0, 1) or time not in (0, 1) or batch == time:
        raise ContradictionError(
            f"its batch_axis {batch} and time_axis {time} have to be 0 and 1, or 1 and 0"
        )
    require_type("lengths", lengths, (DType.INT64,))
    require_shape("the list of lengths", lengths, x.shape[batch])
    longest = x.shape[time]
    for length in contents.integers(node, 1) or ():
        if length < 0 or (isinstance(longest, int) and length > longest):
            raise ContradictionError(
                f"a length of {length} does not fit axis {time}, of length {longest}"
            )
    return _types(node, x.shape)
