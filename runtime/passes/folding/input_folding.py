"""A scale and a shift of what Conv, Gemm or MatMul reads, moved into its constants.

Theory of operation. Conv is linear in its input, too: ``Conv(scale * x + shift, W)`` with a number
for each input channel is ``Conv(x, scale * W)`` with another bias, the sum of ``shift * W`` over
each window. What is padded with zeros is not shifted, so a shift goes in only where there are no
pads. Gemm takes both, and MatMul, which has no bias, only a scale; their channels are on the last
axis of what they read. Only what prepares an input is looked for, not what ends an activation in
pieces: that is fused as a whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import DType, Node, TensorType, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, only_user, rank_of
from ..rewriting.node_traits import is_unused
from ..rewriting.patch_check import have_one_affinity
from .weight_folding import (
    FOLDED_DTYPES,
    SHARED_LIMIT_BYTES,
    Affine,
    is_too_small,
    new_constant,
    scaled_weights,
)

__all__ = ["fold_into_reader", "is_prepared", "per_input_channel", "reader_after"]

_Array = np.ndarray[Any, Any]

MOST_SHIFT = 256.0
"""In units of what is shifted. A sum over large numbers, from which their mean is taken afterwards,
has lost what the numbers differ in: a pixel's mean is small enough for that, a year is not."""

_READERS = ("Conv", "Gemm", "MatMul")
_STEPS = ("Add", "Sub", "Mul", "Div")
_SOURCES = (
    *("BatchNormalization", "Cast", "Concat", "DepthToSpace", "Gather", "Identity", "Pad"),
    *("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "Reshape", "Resize"),
    *("Slice", "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze"),
)
"""No activation in pieces ends with a scale of what these give."""


def reader_after(node: Node) -> Node | None:
    """Return the operator with constants that alone reads a node's first result; or None.

    That is a Conv, a Gemm or a MatMul, which read it as their first input. A node with other
    results that are used has none.
    """
    user = only_user(node.outputs[0])
    if user is None or not is_standard(user, *_READERS) or user.inputs[0] is not node.outputs[0]:
        return None
    if not all(is_unused(value) for value in node.outputs[1:]):
        return None
    weights, bias = user.input_at(1), user.input_at(2)
    is_constant = weights is not None and weights.constant is not None
    if not is_constant or (bias is not None and bias.constant is None):
        return None
    rank = _weights(user).ndim
    has_rank = rank >= 3 if user.op_type == "Conv" else rank == 2
    is_turned = bool(user.attributes.get("transA", 0))
    return user if has_rank and not is_turned and _is_float(_weights(user)) else None


def is_prepared(value: Value) -> bool:
    """True for an input, or what moves or pools one, also scaled and shifted by constants."""
    node = value.producer
    while node is not None and is_standard(node, *_STEPS):
        given = [item for item in node.inputs if item is not None and item.constant is None]
        if len(given) != 1:
            return False
        node = given[0].producer
    return node is None or is_standard(node, *_SOURCES)


def per_input_channel(reader: Node, value: Value, array: _Array) -> _Array | None:
    """Read a constant that is combined with a value as one number for each channel, or as one.

    Gives float64, of shape () or (input channels,); None if it varies along another axis, or if
    the value is not known to have these channels already.
    """
    known, count = rank_of(value), _channel_count(reader)
    rank = known if reader.op_type == "MatMul" else _weights(reader).ndim
    if not _is_float(array) or (array.ndim and (known != rank or array.ndim > (rank or 0))):
        return None
    if array.size == 1:
        return array.reshape(()).astype(np.float64)
    if rank is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    axis = 1 - rank if reader.op_type == "Conv" else -1
    is_along = array.ndim >= -axis and array.shape[axis] == count == array.size
    is_whole = is_along and value.type.shape[axis] == count
    return array.reshape(count).astype(np.float64) if is_whole else None


def fold_into_reader(node: Node, value: Value, reader: Node, affine: Affine) -> GraphPatch | None:
    """Make an operator read ``value``, which ``node`` scales and shifts for it alone.

    None if there are pads that would be shifted, or no bias, or if numbers or their last bits would
    be lost.
    """
    if not affine.is_finite or not have_one_affinity((node, reader)):
        return None
    if any(
        part.ndim and part.size != _channel_count(reader) for part in (affine.scale, affine.shift)
    ):
        return None
    if affine.shift.any() and (reader.op_type == "MatMul" or _may_pad(reader)):
        return None
    if (np.abs(affine.shift) > MOST_SHIFT * np.abs(affine.scale)).any():
        return None
    weights = _weights(reader)
    if affine.scales and _is_shared(reader.inputs[1]) and weights.nbytes > SHARED_LIMIT_BYTES:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        made = scaled_weights(_in_groups(reader, weights), _column(reader, affine.scale))
        bias = _bias(reader, affine.shift)
    if not all(np.isfinite(array).all() for array in (made, bias) if array is not None):
        return None
    if is_too_small(made, weights):
        return None
    return _patch(node, value, reader, made, bias)


def _patch(
    node: Node, value: Value, reader: Node, weights: _Array | None, bias: _Array | None
) -> GraphPatch:
    patch = GraphPatch(f"fold {node.op} {node.name!r} into {reader.op} {reader.name!r}")
    inputs = [value, *reader.inputs[1:]]
    if weights is not None:
        constant = inputs[1] = new_constant(
            reader, 1, weights.reshape(_weights(reader).shape), "weights"
        )
        patch.add_constant(constant)
    if bias is not None:
        constant = new_constant(reader, 2, bias, "bias")
        inputs[2:] = [constant]
        patch.add_constant(constant)
    old = reader.outputs[0]
    result = Value(old.name, old.type)
    attributes = dict(reader.attributes)
    if bias is not None and reader.op_type == "Gemm":
        attributes["beta"] = 1.0
    made = Node(reader.op_type, inputs, (result,), attributes, name=reader.name)
    return patch.add(made).replace(old, result).remove(node).remove(reader)


def _bias(reader: Node, shift: _Array) -> _Array | None:
    """Return the bias with what the shift adds to each sum; None where nothing is shifted."""
    if not shift.any():
        return None
    weights, old = _weights(reader), reader.input_at(2)
    grouped = _in_groups(reader, weights.astype(np.float64)) * _column(reader, shift)
    if reader.op_type == "Conv":
        added = grouped.sum(axis=tuple(range(2, grouped.ndim))).reshape(-1)
    else:
        added = grouped.sum(axis=_row_axis(reader)) * float(reader.attributes.get("alpha", 1.0))
    before = 0.0 if old is None or old.constant is None else old.constant.astype(np.float64)
    factor = float(reader.attributes.get("beta", 1.0))  # of a Gemm
    return np.array(added + before * factor, dtype=weights.dtype)


def _column(reader: Node, numbers: _Array) -> _Array:
    """Lay numbers for input channels along the weights in groups."""
    if numbers.ndim == 0:
        return numbers
    if reader.op_type != "Conv":
        return np.expand_dims(numbers, 1 - _row_axis(reader))
    groups, rank = _groups(reader), _weights(reader).ndim
    return numbers.reshape((groups, 1, -1) + (1,) * (rank - 2))


def _row_axis(matmul: Node) -> int:
    """Return the axis of the weights of Gemm or MatMul over which they sum."""
    return int(bool(matmul.attributes.get("transB", 0)))


def _in_groups(reader: Node, weights: _Array) -> _Array:
    if reader.op_type != "Conv":
        return weights
    groups = _groups(reader)
    return weights.reshape((groups, weights.shape[0] // groups, *weights.shape[1:]))


def _may_pad(reader: Node) -> bool:
    auto = reader.text("auto_pad", "NOTSET")
    if auto == "VALID":
        return False
    return auto != "NOTSET" or any(reader.attributes.get("pads") or ())


def _is_shared(value: Value | None) -> bool:
    return value is not None and (len(value.uses) > 1 or value.is_graph_output)


def _channel_count(reader: Node) -> int:
    if reader.op_type != "Conv":
        return int(_weights(reader).shape[_row_axis(reader)])
    return int(_weights(reader).shape[1]) * _groups(reader)


def _groups(reader: Node) -> int:
    return int(reader.attributes.get("group", 1))


def _weights(reader: Node) -> _Array:
    weights = reader.inputs[1]
    assert weights is not None
    assert weights.constant is not None
    return weights.constant


def _is_float(array: _Array) -> bool:
    return DType.of(array.dtype) in FOLDED_DTYPES
