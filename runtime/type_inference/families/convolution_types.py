"""Types of convolutions and pools: windows that move over the axes after batch and channels.

Where a window fits every place of an axis (stride 1, as much padding as it reaches over the edges),
a symbol stays what it is. A window that fits nowhere is a contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...graph import Dim, DType, Node, Shape, TensorType, shape_text
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import agree, is_contradiction, product
from ..operands import (
    EIGHT_BITS,
    Operand,
    integer,
    integers,
    operand,
    require_length,
    require_rank,
    require_same_type,
    require_shape,
    require_type,
)
from ..rules import type_rule
from .windows import SAME, same_count, window_count, window_reach


class _Window(NamedTuple):
    """Along each axis: how far a window reaches, how it moves, and the padding on both sides."""

    reaches: Sequence[int]
    strides: Sequence[int]
    begins: Sequence[int]
    ends: Sequence[int]
    keeps_size: bool
    """Padded so that as many places are left as strides fit into the axis."""


def _window(node: Node, count: int, kernel: Sequence[int] | None) -> _Window | None:
    """Read a window over ``count`` axes; None if the window itself is not known."""
    strides = integers(node, "strides", count, 1, least=1)
    dilations = integers(node, "dilations", count, 1, least=1)
    pads = integers(node, "pads", 2 * count, 0)
    padding = node.attributes.get("auto_pad", "NOTSET")
    if kernel is None or strides is None or dilations is None or pads is None:
        return None
    if not isinstance(padding, str) or padding not in ("NOTSET", "VALID", *SAME):
        raise ContradictionError(f"its auto_pad is {padding!r}, which ONNX lacks")
    # Runtimes differ in what they do where both are given; with no padding at all they do not.
    if "pads" in node.attributes and padding != "NOTSET" and (padding in SAME or any(pads)):
        return None
    pairs = zip(kernel, dilations, strict=True)
    reaches = [window_reach(size, dilation) for size, dilation in pairs]
    return _Window(reaches, strides, pads[:count], pads[count:], padding in SAME)


def _kernel(node: Node, weights: Shape) -> list[int] | None:
    """Return the weights' window; None if it is not known."""
    known = [dim for dim in weights[2:] if isinstance(dim, int)]
    if 0 in known:
        raise ContradictionError(f"weights of shape {shape_text(weights)} have an empty window")
    if "kernel_shape" not in node.attributes:
        return known if len(known) == len(weights) - 2 else None
    declared = integers(node, "kernel_shape", len(weights) - 2, least=1)
    if declared is not None and is_contradiction(declared, weights[2:]):
        raise ContradictionError(
            f"its kernel_shape is {declared}, and its weights are {shape_text(weights)}"
        )
    return declared


def _positions(length: Dim, axis: int, window: _Window, rounds_up: bool) -> Dim:
    """Count the places of a window along an axis; raises where it fits nowhere."""
    reach, stride = window.reaches[axis], window.strides[axis]
    begin, end = window.begins[axis], window.ends[axis]
    if not isinstance(length, int):
        stays = stride == 1 and (window.keeps_size or begin + end == reach - 1)
        return length if stays else None
    if window.keeps_size:
        return same_count(length, stride)
    count = window_count(length, begin, end, reach, stride, rounds_up)
    if count < 0 or (count == 0 and length + begin + end > 0):
        raise ContradictionError(
            f"a window that reaches over {reach} elements does not fit a length of {length} with "
            f"{begin} + {end} of padding"
        )
    return count


def _places(lengths: Shape, window: _Window, rounds_up: bool = False) -> Shape:
    return tuple(_positions(dim, axis, window, rounds_up) for axis, dim in enumerate(lengths))


def _check_channels(what: str, outer: Dim, inner: Dim, group: int) -> None:
    """Raise unless groups of ``inner`` channels may make up ``outer`` ones."""
    if group < 1 or (isinstance(outer, int) and outer % group):
        raise ContradictionError(f"{outer} channels of the {what} are no {group} groups")
    if isinstance(inner, int) and not agree(outer, inner * group):
        raise ContradictionError(
            f"the {what} has {outer} channels, and {group} groups of {inner} are wanted"
        )


def _convolved(node: Node, x: Operand | None, w: Operand | None, bias: int) -> Shape | None:
    """Return a convolution's shape; ``bias`` is the index of that input."""
    group = integer(node, "group", 1)
    if x is None or w is None or group is None:
        return None
    require_rank("the input", x, 3, -1)
    require_rank("the weights", w, len(x.shape))
    batch, channels, *lengths = x.shape
    made = w.shape[0]
    _check_channels("input", channels, w.shape[1], group)
    _check_channels("result", made, None, group)
    _check_bias(operand(node, bias), made)
    window = _window(node, len(lengths), _kernel(node, w.shape))
    return None if window is None else (batch, made, *_places(tuple(lengths), window))


def _check_bias(bias: Operand | None, channels: Dim) -> None:
    if bias is not None:
        require_shape("the bias", bias, channels)


@type_rule("Conv")
def conv(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, C, ...) and (M, C / group, ...) make (N, M, ...)."""
    x, w = operand(node, 0), operand(node, 1)
    shape = _convolved(node, x, w, bias=2)
    if x is None or w is None:
        return None
    require_same_type("input and weights", x, w)
    return None if shape is None else [TensorType(x.dtype, shape)]


@type_rule("DeformConv")
def deformable_conv(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As Conv; its third input says where each element of the window lies."""
    x, w = operand(node, 0), operand(node, 1)
    shape, offsets = _convolved(node, x, w, bias=3), operand(node, 2)
    if shape is None or x is None or w is None or offsets is None:
        return None
    require_same_type("input and weights", x, w)
    groups = integer(node, "offset_group", 1) or 1
    taps = _count(w.shape[2:], groups)
    per_axis = taps * len(w.shape[2:]) if isinstance(taps, int) else None
    require_shape("the offsets", offsets, shape[0], per_axis, *shape[2:])
    mask = operand(node, 4)
    if mask is not None:
        require_shape("the mask", mask, shape[0], taps, *shape[2:])
    return [TensorType(x.dtype, shape)]


def _count(window: Shape, groups: int) -> Dim:
    taps = product(window)
    return taps * groups if isinstance(taps, int) else None


@type_rule("ConvInteger")
def conv_integer(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As Conv, without a bias; sums are int32."""
    x, w = operand(node, 0), operand(node, 1)
    for what, given in (("the input", x), ("the weights", w)):
        if given is not None:
            require_type(f"numbers of {what}", given, EIGHT_BITS)
    shape = _convolved(node, x, w, bias=len(node.inputs))
    return None if shape is None else [TensorType(DType.INT32, shape)]


@type_rule("QLinearConv")
def quantized_conv(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As Conv, of the element type of the result's zero point."""
    x, w, zero_point = operand(node, 0), operand(node, 3), operand(node, 7)
    shape = _convolved(node, x, w, bias=8)
    if shape is None or x is None or w is None or zero_point is None:
        return None
    for what, found in (("the input", x), ("the weights", w), ("the result", zero_point)):
        require_type(f"numbers of {what}", found, EIGHT_BITS)
    for index, known in ((2, x), (5, w)):
        given = operand(node, index)
        if given is None:
            return None
        require_same_type("a tensor and its zero point", known, given)
    for index in (1, 2, 4, 5, 6, 7):
        given = operand(node, index)
        if given is not None:
            require_rank("a scale or zero point", given, 0, 1)
    for index in (4, 5):
        given = operand(node, index)
        if given is not None and len(given.shape) == 1 and given.shape[0] != 1:
            require_length(
                "the number of scales or zero points of weights", given.shape[0], shape[1]
            )
    return [TensorType(zero_point.dtype, shape)]


@type_rule("ConvTranspose")
def transposed_conv(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, C, ...) and (C, M / group, ...) make (N, M, ...)."""
    x, w, group = operand(node, 0), operand(node, 1), integer(node, "group", 1)
    if x is None or w is None or group is None:
        return None
    require_rank("the input", x, 3, -1)
    require_rank("the weights", w, len(x.shape))
    require_same_type("input and weights", x, w)
    require_length("the number of rows of weights", w.shape[0], x.shape[1])
    _check_channels("input", x.shape[1], None, group)
    made = w.shape[1]
    if isinstance(made, int):
        made *= group
    elif group > 1:
        made = None
    window = _window(node, len(x.shape) - 2, _kernel(node, w.shape))
    _check_bias(operand(node, 2), made)
    if window is None:
        return None
    lengths = _spread(node, x.shape[2:], window)
    return None if lengths is None else [TensorType(x.dtype, (x.shape[0], made, *lengths))]


def _spread(node: Node, lengths: Shape, window: _Window) -> Shape | None:
    """Return the lengths that a transposed convolution makes of these."""
    added = integers(node, "output_padding", len(lengths), 0)
    if added is None:
        return None
    if "output_shape" in node.attributes:
        declared = integers(node, "output_shape", len(lengths), least=1)
        pairs = zip(declared or (), lengths, strict=False)
        if declared is None:
            return None
        if any(isinstance(dim, int) and size < dim for size, dim in pairs):
            raise ContradictionError(
                f"its output_shape {declared} is smaller than the input's {shape_text(lengths)}"
            )
        return tuple(declared)
    found: list[Dim] = []
    for axis, dim in enumerate(lengths):
        reach, stride = window.reaches[axis], window.strides[axis]
        removed = window.begins[axis] + window.ends[axis]
        if window.keeps_size:
            removed = reach + added[axis] - stride
            if removed < 0:  # the specification's length, and onnxruntime's is shorter
                return None
        more = reach + added[axis] - removed
        if isinstance(dim, int):
            found.append(stride * (dim - 1) + more)
            if stride * (dim - 1) + more < 1 and dim > 0:
                raise ContradictionError(f"of a length of {dim} its padding leaves nothing")
        else:
            found.append(dim if stride == more == 1 else None)
    return None if any(isinstance(dim, int) and dim < 1 for dim in found) else tuple(found)


@type_rule("AveragePool", "LpPool", "MaxPool")
def pool(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, C, ...) stays so in its first two axes; MaxPool's indices are of the same shape."""
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the input", x, 3, -1)
    count = len(x.shape) - 2
    window = _window(node, count, integers(node, "kernel_shape", count, least=1))
    rounds_up = integer(node, "ceil_mode", 0)
    if window is None or rounds_up is None:
        return None
    shape = (*x.shape[:2], *_places(x.shape[2:], window, rounds_up != 0))
    types = [TensorType(x.dtype, shape)]
    if node.op_type == "MaxPool" and len(node.outputs) > 1:
        types.append(TensorType(DType.INT64, shape))
    return types


@type_rule("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def global_pool(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, C, ...) becomes (N, C, 1, ...)."""
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the input", x, 2, -1)
    return [TensorType(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:])))]


@type_rule("MaxUnpool")
def unpool(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """The shape that a MaxPool had before, or the one that the third input holds."""
    x, places = operand(node, 0), operand(node, 1)
    if x is None or places is None:
        return None
    require_rank("the input", x, 3, -1)
    require_shape("the list of places", places, *x.shape)
    if node.input_at(2) is not None:
        shape = contents.integers(node, 2)
        if shape is not None and (len(shape) != len(x.shape) or min(shape) < 0):
            raise ContradictionError(f"{shape} is no shape for {len(x.shape)} axes")
        return [TensorType(x.dtype, tuple(shape))] if shape is not None else None
    count = len(x.shape) - 2
    window = _window(node, count, integers(node, "kernel_shape", count, least=1))
    lengths = None if window is None else _spread(node, x.shape[2:], window)
    return None if lengths is None else [TensorType(x.dtype, (*x.shape[:2], *lengths))]
