"""A scale and a shift of what Conv reads, moved into its constants.

Theory of operation. Conv is linear in its input, too: ``Conv(scale * x + shift, W)`` with a number
for each input channel is ``Conv(x, scale * W)`` with another bias, the sum of ``shift * W`` over
each window. What is padded with zeros is not shifted, so a shift goes in only where there are no
pads. Only what prepares an input is looked for, not what ends an activation in pieces: that is
fused as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import DType, Node, TensorType, Value
from .graph_patch import GraphPatch
from .matching import input_at, is_standard, only_user, rank_of
from .node_traits import is_unused
from .patch_check import have_one_affinity
from .weight_folding import FOLDED_DTYPES, SHARED_LIMIT_BYTES, Affine, new_constant, scaled_weights

__all__ = ["conv_after", "fold_into_conv_after", "is_prepared", "per_input_channel"]

_Array = np.ndarray[Any, Any]

_STEPS = ("Add", "Sub", "Mul", "Div")
_SOURCES = (
    *("BatchNormalization", "Cast", "Concat", "DepthToSpace", "Gather", "Identity", "Pad"),
    *("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "Reshape", "Resize"),
    *("Slice", "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze"),
)
"""No activation in pieces ends with a scale of what these give."""


def conv_after(node: Node) -> Node | None:
    """Give the Conv with constants that alone reads a node's first result, as its input; or None.

    A node with other results that are used has none.
    """
    user = only_user(node.outputs[0])
    if user is None or not is_standard(user, "Conv") or user.inputs[0] is not node.outputs[0]:
        return None
    if not all(is_unused(value) for value in node.outputs[1:]):
        return None
    weights, bias = input_at(user, 1), input_at(user, 2)
    is_constant = weights is not None and weights.constant is not None
    if not is_constant or (bias is not None and bias.constant is None):
        return None
    return user if _weights(user).ndim >= 3 and _is_float(_weights(user)) else None


def is_prepared(value: Value) -> bool:
    """True for an input, or what moves or pools one, also scaled and shifted by constants."""
    node = value.producer
    while node is not None and is_standard(node, *_STEPS):
        given = [item for item in node.inputs if item is not None and item.constant is None]
        if len(given) != 1:
            return False
        node = given[0].producer
    return node is None or is_standard(node, *_SOURCES)


def per_input_channel(conv: Node, value: Value, array: _Array) -> _Array | None:
    """Read a constant that is combined with a value as one number for each channel, or as one.

    Gives float64, of shape () or (input channels,); None if it varies along another axis, or if
    the value is not known to have these channels already.
    """
    rank, count = _weights(conv).ndim, _channel_count(conv)
    if not _is_float(array) or (array.ndim and rank_of(value) != rank) or array.ndim > rank:
        return None
    if array.size == 1:
        return array.reshape(()).astype(np.float64)
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    is_along = array.ndim >= rank - 1 and array.shape[1 - rank] == count == array.size
    is_whole = is_along and value.type.shape[1] == count
    return array.reshape(count).astype(np.float64) if is_whole else None


def fold_into_conv_after(node: Node, value: Value, conv: Node, affine: Affine) -> GraphPatch | None:
    """Let a Conv read ``value``, which ``node`` scales and shifts for it alone.

    None if there are pads that would be shifted, or if numbers would be lost.
    """
    if not affine.is_finite or not have_one_affinity((node, conv)):
        return None
    if any(
        part.ndim and part.size != _channel_count(conv) for part in (affine.scale, affine.shift)
    ):
        return None
    if affine.shift.any() and _may_pad(conv):
        return None
    weights = _weights(conv)
    if affine.scales and _is_shared(conv.inputs[1]) and weights.nbytes > SHARED_LIMIT_BYTES:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        made = scaled_weights(_in_groups(conv, weights), _column(conv, affine.scale))
        bias = _bias(conv, affine.shift)
    if not all(np.isfinite(array).all() for array in (made, bias) if array is not None):
        return None
    return _patch(node, value, conv, made, bias)


def _patch(
    node: Node, value: Value, conv: Node, weights: _Array | None, bias: _Array | None
) -> GraphPatch:
    patch = GraphPatch(f"fold {node.op} {node.name!r} into {conv.op} {conv.name!r}")
    inputs = [value, *conv.inputs[1:]]
    if weights is not None:
        constant = inputs[1] = new_constant(
            conv, 1, weights.reshape(_weights(conv).shape), "weights"
        )
        patch.add_constant(constant)
    if bias is not None:
        constant = new_constant(conv, 2, bias, "bias")
        inputs[2:] = [constant]
        patch.add_constant(constant)
    old = conv.outputs[0]
    result = Value(old.name, old.type)
    made = Node("Conv", inputs, (result,), conv.attributes, name=conv.name)
    return patch.add(made).replace(old, result).remove(node).remove(conv)


def _bias(conv: Node, shift: _Array) -> _Array | None:
    """Give the bias with what the shift adds to each sum; None where nothing is shifted."""
    if not shift.any():
        return None
    weights, old = _weights(conv), input_at(conv, 2)
    grouped = _in_groups(conv, weights.astype(np.float64))
    added = (grouped * _column(conv, shift)).sum(axis=tuple(range(2, grouped.ndim))).reshape(-1)
    before = 0.0 if old is None or old.constant is None else old.constant.astype(np.float64)
    return np.array(added + before, dtype=weights.dtype)


def _column(conv: Node, numbers: _Array) -> _Array:
    """Lay numbers for input channels along the weights in groups."""
    if numbers.ndim == 0:
        return numbers
    groups, rank = _groups(conv), _weights(conv).ndim
    return numbers.reshape((groups, 1, -1) + (1,) * (rank - 2))


def _in_groups(conv: Node, weights: _Array) -> _Array:
    groups = _groups(conv)
    return weights.reshape((groups, weights.shape[0] // groups, *weights.shape[1:]))


def _may_pad(conv: Node) -> bool:
    auto = conv.attributes.get("auto_pad", "NOTSET")
    if auto in ("VALID", b"VALID"):
        return False
    return auto not in ("NOTSET", b"NOTSET") or any(conv.attributes.get("pads") or ())


def _is_shared(value: Value | None) -> bool:
    return value is not None and (len(value.uses) > 1 or value.is_graph_output)


def _channel_count(conv: Node) -> int:
    return int(_weights(conv).shape[1]) * _groups(conv)


def _groups(conv: Node) -> int:
    return int(conv.attributes.get("group", 1))


def _weights(conv: Node) -> _Array:
    weights = conv.inputs[1]
    assert weights is not None
    assert weights.constant is not None
    return weights.constant


def _is_float(array: _Array) -> bool:
    return DType.of(array.dtype) in FOLDED_DTYPES
