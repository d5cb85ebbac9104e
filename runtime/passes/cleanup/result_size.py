"""How large the result of a node will be, predicted before it is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ....errors import ModelError
from ...graph import Node, TensorType, size_bytes
from ...graph.sym_array import integers_in
from ...graph.sym_int import plain_int
from ...type_inference.dims import broadcast
from ...type_inference.families.resized_lengths import resized_by_scales, resized_to_sizes

__all__ = ["inputs_bytes", "item_bytes", "predict_bytes", "resized_shape"]

_WIDEST_ITEM_BYTES = 16
"""Of complex128; assumed where the element type of the result is not known."""


def inputs_bytes(node: Node) -> int:
    """Bytes of all constants that a node uses."""
    arrays = (value.constant for value in node.inputs if value is not None)
    return sum(array.nbytes for array in arrays if array is not None)


def predict_bytes(node: Node) -> int | None:
    """Bytes of all outputs of a node whose inputs are constants; None if they are not known.

    An operator that blows its input up by what the input says is computed by a rule, for the others
    the types are asked. Without those, elements are taken to be paired at most once each.
    """
    if node.op in _COUNTS:
        try:
            return _COUNTS[node.op](node) * item_bytes(node)
        except (ArithmeticError, IndexError, TypeError, ValueError, ModelError):
            return None
    known = [
        size for size in (size_bytes(value.type) for value in node.outputs) if size is not None
    ]
    if len(known) == len(node.outputs):
        return sum(known)
    return None if node.domain or node.op in _UNPREDICTABLE else _largest_product(node)


def item_bytes(node: Node) -> int:
    """Bytes of one element of the first output; the most that there are where that is not known."""
    known = node.outputs[0].type
    return known.dtype.item_bytes if isinstance(known, TensorType) else _WIDEST_ITEM_BYTES


def _largest_product(node: Node) -> int:
    """Bound the result of an operator that pairs elements of its inputs at most once each."""
    sizes = [
        value.constant.size
        for value in node.inputs
        if value is not None and value.constant is not None
    ]
    return math.prod(max(size, 1) for size in sizes) * item_bytes(node)


def _constant(node: Node, index: int) -> np.ndarray:
    value = node.inputs[index]
    if value is None or value.constant is None:
        raise ValueError(f"input {index} of {node.name!r} is no constant")
    return value.constant


def _integers(node: Node, index: int) -> list[int]:
    return integers_in(_constant(node, index))


def _constant_of_shape(node: Node) -> int:
    return math.prod(_integers(node, 0))


def _expand(node: Node) -> int:
    shape = broadcast([_constant(node, 0).shape, tuple(_integers(node, 1))])
    return math.prod(length for length in shape if isinstance(length, int))


def _tile(node: Node) -> int:
    return _constant(node, 0).size * math.prod(_integers(node, 1))


def _range(node: Node) -> int:
    start, limit, step = (plain_int(_constant(node, index).item()) for index in range(3))
    return max(math.ceil((limit - start) / step), 0)


def _one_hot(node: Node) -> int:
    return _constant(node, 0).size * _integers(node, 1)[0]


def _pad(node: Node) -> int:
    array = _constant(node, 0)
    if node.input_at(3) is not None:
        raise ValueError("padding of some axes only is left to its type")
    pads = _integers(node, 1)
    lengths = zip(array.shape, pads[: array.ndim], pads[array.ndim :], strict=True)
    return math.prod(max(length + before + after, 0) for length, before, after in lengths)


def resized_shape(node: Node) -> list[int]:
    """Return the shape that a Resize of constants makes; ValueError where it says none."""
    made = list(_constant(node, 0).shape)
    axes = [int(axis) % len(made) for axis in node.attributes.get("axes") or range(len(made))]
    lengths = tuple(made[axis] for axis in axes)
    given = [node.input_at(index) for index in (2, 3)]
    scales, sizes = (None if value is None else value.constant for value in given)
    if scales is not None and scales.size:
        found = resized_by_scales(lengths, scales.ravel().tolist())
    elif sizes is not None:
        policy = node.text("keep_aspect_ratio_policy", "stretch")
        found = resized_to_sizes(lengths, tuple(sizes.ravel().tolist()), policy)
    else:
        found = None
    for axis, count in zip(axes, found or (), strict=True):
        if not isinstance(count, int) or count < 0:
            raise ValueError(f"{node.name!r} makes no length of axis {axis}")
        made[axis] = count
    return made


_COUNTS: Mapping[str, Callable[[Node], int]] = {
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Resize": lambda node: math.prod(resized_shape(node)),
    "Tile": _tile,
}
_UNPREDICTABLE = frozenset(
    {
        "AffineGrid",
        "AveragePool",
        "BlackmanWindow",
        "CenterCropPad",
        "Col2Im",
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "DFT",
        "DeformConv",
        "EyeLike",
        "HammingWindow",
        "HannWindow",
        "ImageDecoder",
        "LpPool",
        "MaxPool",
        "MaxUnpool",
        "MelWeightMatrix",
        "QLinearConv",
        "STFT",
        "Upsample",
    }
)
"""They make more elements than they are given, as far as their attributes say."""
