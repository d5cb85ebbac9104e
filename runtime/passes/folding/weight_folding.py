"""A scale and a shift of what Conv, ConvTranspose, Gemm or MatMul gives, moved into its constants.

Theory of operation. All four are linear in their weights, so ``scale * op(x, W) + shift`` is
``op(x, scale * W)`` with another bias, if there is one number for each output channel. Matmuls are
computed in float64 and rounded once, to the type of the weights. Whatever does not fit in (weights
that are no constants, results that overflow) is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ....executors.late_imports import late_imports
from ...graph import DType, Node, TensorType, Value
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import is_standard, only_user, rank_of
from ..rewriting.patch_check import have_one_affinity

__all__ = [
    "Affine",
    "channel_axis",
    "channel_count",
    "fold_into_weights",
    "is_too_small",
    "new_constant",
    "per_channel",
    "scaled_weights",
]

LINEAR_OPS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_LARGEST_TINY = 64  # the others are smaller, and lose a bit for each power of two below 1
FOLDED_DTYPES = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
SHARED_LIMIT_BYTES = 16 << 20
"""Larger weights that others use, too, stay: folding would keep a second copy of them in memory."""

_Array = np.ndarray[Any, Any]


class Affine(NamedTuple):
    """result * scale + shift; both float64, of shape () or (output channels,)."""

    scale: _Array
    shift: _Array

    @property
    def scales(self) -> bool:
        """True if the weights change."""
        return bool((self.scale != 1.0).any())

    @property
    def is_finite(self) -> bool:
        """True if no number is infinite or NaN."""
        return bool(np.isfinite(self.scale).all() and np.isfinite(self.shift).all())


class _Parts(NamedTuple):
    """A rewritten operator: its new constants, None for one that stays or is not there."""

    weights: _Array | None
    bias: _Array | None
    attributes: Mapping[str, Any]


def channel_count(node: Node) -> int | None:
    """Count the output channels of a node that can be folded into; None for any other.

    It is one of the four operators, and its weights and its bias, if any, are float constants.
    """
    if not is_standard(node, *LINEAR_OPS) or len(node.inputs) < 2:
        return None
    weights, bias = _constant(node, 1), _constant(node, 2)
    if weights is None or not _is_float(weights) or (bias is None and node.input_at(2)):
        return None
    return _COUNTS[node.op_type](node, weights)


def channel_axis(node: Node) -> int | None:
    """Return the axis of the output channels in the result, from the front; None if not known."""
    if node.op_type != "MatMul":
        return 1
    rank = rank_of(node.inputs[0])
    return None if rank is None else rank - 1


def per_channel(node: Node, array: _Array, count: int) -> _Array | None:
    """Read a constant that is combined with the result as one number for each channel, or as one.

    Gives float64, of shape () or (count,); None if the constant varies along another axis, or
    has more axes than the result.
    """
    weights = _constant(node, 1)
    rank = weights.ndim if weights is not None and node.op_type != "MatMul" else None
    if node.op_type == "MatMul":
        rank = rank_of(node.inputs[0])
    if array.ndim > (1 if rank is None else rank) or not _is_float(array):
        return None
    if array.size == 1:
        return array.reshape(()).astype(np.float64)
    # Counted from the end, for a constant may leave out the axes in front.
    axis = -1 if node.op_type in ("Gemm", "MatMul") or rank is None else 1 - rank
    is_along = -axis <= array.ndim and array.shape[axis] == count == array.size
    return array.reshape(count).astype(np.float64) if is_along else None


def fold_into_weights(node: Node, follower: Node, affine: Affine) -> GraphPatch | None:
    """Fold the scale and shift of ``follower``, the only user of the node's result, into the node.

    None if numbers would be lost, or if others need what is in between. The weights get a constant
    of their own, as others may use the old one. A MatMul that is shifted is followed by an Add.
    """
    if only_user(node.outputs[0]) is not follower or not have_one_affinity((node, follower)):
        return None
    weights = node.inputs[1]
    if weights is None or weights.constant is None or not affine.is_finite:
        return None
    is_shared = len(weights.uses) > 1 or weights.is_graph_output
    if affine.scales and is_shared and weights.constant.nbytes > SHARED_LIMIT_BYTES:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        parts = _PARTS[node.op_type](node, weights.constant, affine)
    arrays = [array for array in (parts.weights, parts.bias) if array is not None]
    if not all(np.isfinite(array).all() for array in arrays) or is_too_small(
        parts.weights, weights.constant
    ):
        return None
    return _patch(node, follower, parts)


def _smallest_normal(dtype: np.dtype[Any]) -> float:
    if dtype.kind == "f":
        return float(np.finfo(dtype).tiny)
    with late_imports:  # it takes longer to load than most models have weights to fold
        from ml_dtypes import finfo

    return float(finfo(dtype).tiny)  # type: ignore[no-untyped-call]


def is_too_small(made: _Array | None, before: _Array) -> bool:
    """True if the largest of the weights made is lost, or nearly so, among subnormal numbers."""
    if made is None or not before.any():
        return False
    tiny = _smallest_normal(made.dtype)
    # No temporary array: when a large one is freed, malloc serves others of its size from the heap,
    # which keeps what is freed there.
    return max(float(made.max()), -float(made.min())) < _LARGEST_TINY * tiny


def _patch(node: Node, follower: Node, parts: _Parts) -> GraphPatch:
    old = follower.outputs[0]
    patch = GraphPatch(f"fold {follower.op} {follower.name!r} into {node.op} {node.name!r}")
    result = Value(old.name, old.type)
    inputs = list(node.inputs[:2])
    patch.remove(node).remove(follower).replace(old, result)
    if parts.weights is not None:
        weights = inputs[1] = new_constant(node, 1, parts.weights, "weights")
        patch.add_constant(weights)
    if parts.bias is None:
        made = Node(node.op_type, inputs, (result,), parts.attributes, name=node.name)
        return patch.add(made)
    bias = new_constant(node, 2, parts.bias, "bias")
    patch.add_constant(bias)
    if node.op_type != "MatMul":
        inputs.append(bias)
        return patch.add(Node(node.op_type, inputs, (result,), parts.attributes, name=node.name))
    matmul = Value(node.outputs[0].name, node.outputs[0].type)
    multiply = Node("MatMul", inputs, (matmul,), name=node.name)
    return patch.add(multiply).add(Node("Add", (matmul, bias), (result,), name=follower.name))


def new_constant(node: Node, index: int, array: _Array, role: str) -> Value:
    """Make a read-only constant for an input of a node that takes its place."""
    array.flags.writeable = False
    old = node.input_at(index)
    name = f"{node.name}_{role}" if old is None else old.name
    return Value(name, TensorType(DType.of(array.dtype), array.shape), array)


def _constant(node: Node, index: int) -> _Array | None:
    value = node.input_at(index)
    return None if value is None else value.constant


def _is_float(array: _Array) -> bool:
    return DType.of(array.dtype) in FOLDED_DTYPES


def scaled_weights(weights: _Array, scale: _Array) -> _Array | None:
    """Multiply in float64 and round once, without a float64 copy of the weights; None: by one."""
    if (scale == 1.0).all():
        return None
    out = np.empty_like(weights, order="C")
    np.multiply(weights, scale, out=out, dtype=np.float64, casting="unsafe")
    return out


def _conv(node: Node, weights: _Array, affine: Affine) -> _Parts:
    column = affine.scale.reshape((-1,) + (1,) * (weights.ndim - 1))
    scaled = scaled_weights(weights, column)
    return _Parts(scaled, _bias(node, affine, weights), node.attributes)


def _conv_transpose(node: Node, weights: _Array, affine: Affine) -> _Parts:
    groups = node.attributes.get("group", 1)
    # (C, M/groups, ...): output channels of the second group start again at the same place.
    parted = weights.reshape((groups, weights.shape[0] // groups, *weights.shape[1:]))
    scale = np.broadcast_to(affine.scale, (weights.shape[1] * groups,))
    column = scale.reshape((groups, 1, weights.shape[1]) + (1,) * (weights.ndim - 2))
    scaled = scaled_weights(parted, column)
    whole = None if scaled is None else scaled.reshape(weights.shape)
    return _Parts(whole, _bias(node, affine, weights), node.attributes)


def _gemm(node: Node, weights: _Array, affine: Affine) -> _Parts:
    is_transposed = bool(node.attributes.get("transB", 0))
    scale = affine.scale.reshape(-1, 1) if is_transposed else affine.scale
    factor = float(node.attributes.get("beta", 1.0))
    attributes = {**node.attributes, "beta": 1.0}
    bias = _bias(node, affine, weights, factor)
    return _Parts(scaled_weights(weights, scale), bias, attributes)


def _matmul(node: Node, weights: _Array, affine: Affine) -> _Parts:
    return _Parts(
        scaled_weights(weights, affine.scale), _bias(node, affine, weights), node.attributes
    )


def _bias(node: Node, affine: Affine, weights: _Array, factor: float = 1.0) -> _Array | None:
    old = _constant(node, 2)
    if old is None and not affine.shift.any():
        return None
    before = 0.0 if old is None else old.astype(np.float64) * factor
    both = np.asarray(before * affine.scale + affine.shift)
    if both.ndim == 0 and node.op_type != "Gemm":
        both = np.broadcast_to(both, (_COUNTS[node.op_type](node, weights) or 1,))
    return np.array(both, dtype=weights.dtype, order="C")


def _count_conv(node: Node, weights: _Array) -> int | None:
    return int(weights.shape[0]) if weights.ndim >= 3 else None


def _count_conv_transpose(node: Node, weights: _Array) -> int | None:
    groups = node.attributes.get("group", 1)
    return int(weights.shape[1] * groups) if weights.ndim >= 3 else None


def _count_gemm(node: Node, weights: _Array) -> int | None:
    return int(weights.shape[0 if node.attributes.get("transB", 0) else 1])


def _count_matmul(node: Node, weights: _Array) -> int | None:
    rank = rank_of(node.inputs[0])
    # A vector times a matrix has no axis less than the matrix, and nothing to broadcast along.
    return int(weights.shape[1]) if weights.ndim == 2 and (rank is None or rank >= 1) else None


_COUNTS: Mapping[str, Callable[[Node, _Array], int | None]] = {
    "Conv": _count_conv,
    "ConvTranspose": _count_conv_transpose,
    "Gemm": _count_gemm,
    "MatMul": _count_matmul,
}
_PARTS: Mapping[str, Callable[[Node, _Array, Affine], _Parts]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
