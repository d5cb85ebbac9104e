"""Types of what moves elements: other shapes, other orders, other places."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Dim, Node, Shape, TensorType
from .dims import (
    axes_of,
    axis_of,
    broadcast,
    divide,
    merge,
    product,
    total,
    with_dims,
)
from .list_content import sliced_length, split_lengths
from .operands import integer, integers, operand
from .reshaping import reshaped
from .resizing import resized_by_scales, resized_to_sizes
from .rules import type_rule
from .shape_content import ShapeContent

Types = Sequence[TensorType] | None

_FAR = 2**31 - 1
"""What exporters write for "to the end"; no axis is longer."""


def _types(node: Node, shape: Shape | None) -> Types:
    """Give one output of the first input's element type; None for no or an impossible shape."""
    data = operand(node, 0)
    if data is None or shape is None:
        return None
    for dim in shape:
        if isinstance(dim, int) and dim < 0:
            return None
    return (TensorType(data.dtype, shape),)


def _shape(node: Node) -> Shape | None:
    data = operand(node, 0)
    return None if data is None else data.shape


def _given_axes(node: Node, contents: ShapeContent, index: int, default: int) -> list[int] | None:
    """Read an input of axes; where it is left out, they are the first ones."""
    if operand(node, index) is None:
        return list(range(default))
    return contents.integers(node, index)


@type_rule("Reshape")
def _reshape(node: Node, contents: ShapeContent) -> Types:
    shape, target = _shape(node), contents.dims(node, 1)
    allow_zero = integer(node, "allowzero", 0)
    if shape is None or target is None or allow_zero is None:
        return None
    return _types(node, reshaped(shape, target, bool(allow_zero)))


@type_rule("Flatten")
def _flatten(node: Node, contents: ShapeContent) -> Types:
    shape, axis = _shape(node), integer(node, "axis", 1)
    if shape is None or axis is None or not -len(shape) <= axis <= len(shape):
        return None
    axis = axis + len(shape) if axis < 0 else axis
    return _types(node, (product(shape[:axis]), product(shape[axis:])))


@type_rule("Squeeze")
def _squeeze(node: Node, contents: ShapeContent) -> Types:
    shape = _shape(node)
    if shape is None:
        return None
    if operand(node, 1) is None:
        if not all(isinstance(dim, int) for dim in shape):
            return None
        return _types(node, tuple(dim for dim in shape if dim != 1))
    given = contents.integers(node, 1)
    axes = None if given is None else axes_of(given, len(shape))
    if axes is None or any(isinstance(shape[axis], int) and shape[axis] != 1 for axis in axes):
        return None
    return _types(node, tuple(dim for axis, dim in enumerate(shape) if axis not in axes))


@type_rule("Unsqueeze")
def _unsqueeze(node: Node, contents: ShapeContent) -> Types:
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
        if given is None or sorted(given) != list(range(len(shape))):
            return None
        return _types(node, tuple(shape[axis] for axis in given))
    return _types(node, shape[::-1])


@type_rule("Concat")
def _concat(node: Node, contents: ShapeContent) -> Types:
    first = operand(node, 0)
    axis = None if first is None else axis_of(node.attributes.get("axis"), len(first.shape))
    if first is None or axis is None:
        return None
    lengths, rest = [first.shape[axis]], with_dims(first.shape, [axis], [None])
    for index in range(1, len(node.inputs)):
        x = operand(node, index)
        if x is None or x.dtype is not first.dtype or len(x.shape) != len(rest):
            return None
        lengths.append(x.shape[axis])
        rest = merge(rest, with_dims(x.shape, [axis], [None]))
    return _types(node, with_dims(rest, [axis], [total(lengths)]))


@type_rule("Split")
def _split(node: Node, contents: ShapeContent) -> Types:
    x = operand(node, 0)
    axis = None if x is None else axis_of(node.attributes.get("axis", 0), len(x.shape))
    if x is None or axis is None:
        return None
    parts, known = contents.dims(node, 1), contents.integers(node, 1)
    if parts is None and operand(node, 1) is not None:
        return None
    length = x.shape[axis]
    found: Sequence[Dim] | None
    if isinstance(length, int) and (parts is None or known is not None):
        found = split_lengths(node, length, known)
    elif parts is not None:
        is_fit = len(parts) == len(node.outputs) and min(known or [0]) >= 0
        found = parts if is_fit else None
    else:
        found = [length] if len(node.outputs) == 1 else [None] * len(node.outputs)
    if found is None:
        return None
    return [TensorType(x.dtype, with_dims(x.shape, [axis], [part])) for part in found]


@type_rule("Slice")
def _slice(node: Node, contents: ShapeContent) -> Types:
    shape, starts, ends = _shape(node), contents.dims(node, 1), contents.dims(node, 2)
    if shape is None or starts is None or ends is None:
        return None
    given = _given_axes(node, contents, 3, len(starts))
    steps = [1] * len(starts) if operand(node, 4) is None else contents.integers(node, 4)
    axes = None if given is None else axes_of(given, len(shape))
    if axes is None or steps is None or 0 in steps:
        return None
    if not len(starts) == len(ends) == len(axes) == len(steps):
        return None
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
    shape, target = _shape(node), contents.dims(node, 1)
    if shape is None or target is None:
        return None
    return _types(node, broadcast((shape, target)))


@type_rule("Tile")
def _tile(node: Node, contents: ShapeContent) -> Types:
    shape, repeats = _shape(node), contents.dims(node, 1)
    if shape is None or repeats is None or len(repeats) != len(shape):
        return None
    return _types(node, tuple(product(pair) for pair in zip(shape, repeats, strict=True)))


@type_rule("Pad")
def _pad(node: Node, contents: ShapeContent) -> Types:
    shape, pads = _shape(node), contents.dims(node, 1)
    if shape is None or pads is None:
        return None
    given = _given_axes(node, contents, 3, len(shape))
    axes = None if given is None else axes_of(given, len(shape))
    if axes is None or len(pads) != 2 * len(axes):
        return None
    ends = zip(axes, pads, pads[len(axes) :], strict=False)
    return _types(node, with_dims(shape, axes, [total((shape[a], b, e)) for a, b, e in ends]))


@type_rule("DepthToSpace")
def _depth_to_space(node: Node, contents: ShapeContent) -> Types:
    shape, size = _shape(node), integer(node, "blocksize")
    if shape is None or len(shape) != 4 or size is None or size < 1:
        return None
    batch, channels, height, width = shape
    if isinstance(channels, int) and channels % size**2:
        return None
    area = (product((height, size)), product((width, size)))
    return _types(node, (batch, divide(channels, size**2), *area))


@type_rule("SpaceToDepth")
def _space_to_depth(node: Node, contents: ShapeContent) -> Types:
    shape, size = _shape(node), integer(node, "blocksize")
    if shape is None or len(shape) != 4 or size is None or size < 1:
        return None
    batch, channels, height, width = shape
    if any(isinstance(dim, int) and dim % size for dim in (height, width)):
        return None
    area = (divide(height, size), divide(width, size))
    return _types(node, (batch, product((channels, size**2)), *area))


@type_rule("Resize")
def _resize(node: Node, contents: ShapeContent) -> Types:
    """A region of interest changes the lengths only together with scales; it is not followed."""
    shape = _shape(node)
    axes = _attribute_axes(node)
    if shape is None or axes is None:
        return None
    old = tuple(shape[axis] for axis in axes)
    new: Shape | None
    if _is_given(node, 3):
        sizes = contents.dims(node, 3)
        if sizes is None or len(sizes) != len(axes) or _is_given(node, 2):
            return None
        policy = str(node.attributes.get("keep_aspect_ratio_policy", "stretch"))
        new = resized_to_sizes(old, sizes, policy)
    else:
        scales = contents.numbers(node, 2)
        if scales is None or len(scales) != len(axes) or min(scales, default=1) <= 0:
            return None
        if str(node.attributes.get("coordinate_transformation_mode")) == "tf_crop_and_resize":
            return None
        new = resized_by_scales(old, scales)
    return None if new is None else _types(node, with_dims(shape, axes, new))


@type_rule("CenterCropPad")
def _center_crop_pad(node: Node, contents: ShapeContent) -> Types:
    shape, target, axes = _shape(node), contents.dims(node, 1), _attribute_axes(node)
    if shape is None or target is None or axes is None or len(target) != len(axes):
        return None
    return _types(node, with_dims(shape, axes, target))


def _attribute_axes(node: Node) -> list[int] | None:
    shape = _shape(node)
    if shape is None:
        return None
    given = node.attributes.get("axes", list(range(len(shape))))
    return axes_of(given, len(shape)) if isinstance(given, list) else None


def _is_given(node: Node, index: int) -> bool:
    """Tell whether an input is there; an empty list stands for one that is left out."""
    x = operand(node, index)
    return x is not None and x.shape != (0,)


@type_rule("ReverseSequence")
def _reverse_sequence(node: Node, contents: ShapeContent) -> Types:
    shape = _shape(node)
    return None if shape is None or len(shape) < 2 else _types(node, shape)
