"""Types of normalisations: the first input's, and those of the statistics that some of them give.

Scales and offsets are looked at for contradictions only.
"""

from __future__ import annotations

from ...graph import Dim, DType, Node, TensorType
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import axes_of, axis_of, merge
from ..operands import (
    Operand,
    element_type,
    integer,
    operand,
    require_length,
    require_rank,
    require_same_type,
    require_shape,
    require_spread,
    require_type,
)
from ..rules import type_rule

_PARAMETERS = ("the input", "the scale", "the offset", "the mean", "the variance")


def _check_vectors(node: Node, indices: range, length: Dim) -> bool:
    """True if these inputs are there; raises unless they are vectors that may have this length."""
    for index in indices:
        given = operand(node, index)
        if given is None:
            return False
        require_shape(_PARAMETERS[index], given, length)
    return True


def _like(x: Operand) -> list[TensorType]:
    return [TensorType(x.dtype, x.shape)]


def _axis(node: Node, rank: int) -> int:
    """Return the attribute ``axis``, -1 if it is not there, counted from the front."""
    return axis_of(node.attributes.get("axis", -1), rank)


@type_rule("BatchNormalization")
def batch_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """In training, the running mean and variance are given, too."""
    x, mean, variance = operand(node, 0), operand(node, 3), operand(node, 4)
    if x is None or mean is None or variance is None:
        return None
    require_rank("the input", x, 1, -1)
    channels = x.shape[1] if len(x.shape) > 1 else 1
    is_training = integer(node, "training_mode", 0) != 0
    if not _check_vectors(node, range(1, 5), channels):
        return None
    if len(node.outputs) != (3 if is_training else 1):
        return None
    running = [
        TensorType(given.dtype, merge((channels,), given.shape)) for given in (mean, variance)
    ]
    return [*_like(x), *running] if is_training else _like(x)


@type_rule("InstanceNormalization")
def instance_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """One scale and one offset a channel."""
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the input", x, 2, -1)
    return _like(x) if _check_vectors(node, range(1, 3), x.shape[1]) else None


@type_rule("GroupNormalization")
def group_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """One scale and one offset a channel, or a group, as before opset 21; equally large groups.

    onnx's converter leaves those of older models as they are.
    """
    x, count = operand(node, 0), integer(node, "num_groups")
    if x is None or count is None:
        return None
    require_rank("the input", x, 2, -1)
    channels = x.shape[1]
    if count < 1 or (isinstance(channels, int) and channels % count):
        raise ContradictionError(f"{channels} channels are no {count} groups of one size")
    stash = element_type(node, "stash_type", DType.FLOAT32)
    if stash is not None and not stash.is_floating:
        raise ContradictionError(f"its stash_type is {stash.label}, which is no floating type")
    scale = operand(node, 1)
    is_by_group = scale is not None and scale.shape == (count,)
    if not _check_vectors(node, range(1, 3), count if is_by_group else channels):
        return None
    for index in range(1, 3):
        given = operand(node, index)
        if given is not None:
            require_same_type(f"the input and {_PARAMETERS[index]}", x, given)
    return _like(x)


@type_rule("LayerNormalization")
def layer_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Mean and inverse deviation have length 1 in the axes that are normalised."""
    x, scale, offset = operand(node, 0), operand(node, 1), operand(node, 2)
    stash = element_type(node, "stash_type", DType.FLOAT32)
    if x is None or scale is None or stash is None:
        return None
    if not stash.is_floating:
        raise ContradictionError(f"its stash_type is {stash.label}, which is no floating type")
    axis = _axis(node, len(x.shape))
    require_spread("the scale", scale, x.shape)
    if offset is not None:
        require_spread("the offset", offset, x.shape)
    types = _like(x)
    if len(node.outputs) > 1:
        kept = (*x.shape[:axis], *(1 for _ in x.shape[axis:]))
        types += [TensorType(stash, kept)] * 2
    return types


@type_rule("RMSNormalization")
def rms_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of the scale's element type, which onnx's inference takes for the first input's."""
    x, scale = operand(node, 0), operand(node, 1)
    if x is None or scale is None:
        return None
    _axis(node, len(x.shape))
    require_spread("the scale", scale, x.shape)
    return [TensorType(scale.dtype, x.shape)]


@type_rule("LRN")
def local_response_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Over ``size`` neighbouring channels."""
    x, size = operand(node, 0), integer(node, "size")
    if x is None or size is None:
        return None
    require_rank("the input", x, 2, -1)
    if size < 1:
        raise ContradictionError(f"its size is {size}, and at least 1 channel is wanted")
    return _like(x)


@type_rule("LpNormalization")
def lp_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Along one axis."""
    x = operand(node, 0)
    if x is None:
        return None
    _axis(node, len(x.shape))
    return _like(x)


@type_rule("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Along all axes but the channels', unless others are named."""
    x, axes = operand(node, 0), node.attributes.get("axes", [0, 2, 3])
    if x is None or not isinstance(axes, list):
        return None
    axes_of(axes, len(x.shape))
    return _like(x)


@type_rule("RotaryEmbedding")
def rotary_embedding(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(batch, heads, sequence, size), or (batch, sequence, heads * size) with ``num_heads``.

    The tables are (positions, turned / 2) if a fourth input holds the position of each token, else
    (batch, sequence, turned / 2); ``turned`` numbers of each head are rotated, all by default.
    """
    x, cosines, sines, places = (operand(node, index) for index in range(4))
    if x is None or cosines is None or sines is None:
        return None
    require_rank("the input", x, 3, 4)
    size, sequence = x.shape[-1], x.shape[-2]
    if len(x.shape) == 3:
        heads = integer(node, "num_heads", 0) or 0
        if heads < 1 or (isinstance(size, int) and size % heads):
            raise ContradictionError(f"rows of {size} are no {heads} heads of one size")
        size = size // heads if isinstance(size, int) else None
        sequence = x.shape[1]
    turned = integer(node, "rotary_embedding_dim", 0) or size
    if isinstance(turned, int) and (turned < 0 or turned % 2):
        raise ContradictionError(f"{turned} numbers of each head are no pairs to turn")
    if isinstance(turned, int) and isinstance(size, int) and turned > size:
        raise ContradictionError(f"heads of {size} numbers have no {turned} to turn")
    require_shape("the sines", sines, *cosines.shape)
    require_rank("the cosines", cosines, 3 if places is None else 2)
    pairs = turned // 2 if isinstance(turned, int) else None
    require_length("the last length of the cosines", cosines.shape[-1], pairs)
    if places is None:
        require_shape("the cosines", cosines, x.shape[0], sequence, None)
    else:
        require_type("positions", places, (DType.INT64,))
        require_shape("the positions", places, x.shape[0], sequence)
    return _like(x)
