"""Types of normalisations: the first input's, and those of the statistics that some of them give.

Scales and offsets are looked at for contradictions only.
"""

from __future__ import annotations

from ..graph import Dim, DType, Node, TensorType
from .dims import agree, axes_of, axis_of, dtype_numbered, is_contradiction, merge, spreads_over
from .operands import Operand, integer, operand
from .rules import type_rule
from .shape_content import ShapeContent


def _are_vectors(node: Node, indices: range, length: Dim) -> bool:
    """True if these inputs are there, and vectors that may all have this length."""
    for index in indices:
        given = operand(node, index)
        if given is None or len(given.shape) != 1 or not agree(given.shape[0], length):
            return False
    return True


def _like(x: Operand) -> list[TensorType]:
    return [TensorType(x.dtype, x.shape)]


def _axis(node: Node, rank: int) -> int | None:
    """Give the attribute ``axis``, -1 if it is not there, counted from the front."""
    return axis_of(node.attributes.get("axis", -1), rank)


@type_rule("BatchNormalization")
def batch_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """In training, the running mean and variance are given, too."""
    x, mean, variance = operand(node, 0), operand(node, 3), operand(node, 4)
    if x is None or mean is None or variance is None or not x.shape:
        return None
    channels = x.shape[1] if len(x.shape) > 1 else 1
    is_training = integer(node, "training_mode", 0) != 0
    if not _are_vectors(node, range(1, 5), channels):
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
    if x is None or len(x.shape) < 2 or not _are_vectors(node, range(1, 3), x.shape[1]):
        return None
    return _like(x)


@type_rule("GroupNormalization")
def group_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """One scale and one offset a channel; the groups are equally large."""
    x, count = operand(node, 0), integer(node, "num_groups")
    if x is None or len(x.shape) < 2 or not _are_vectors(node, range(1, 3), x.shape[1]):
        return None
    channels = x.shape[1]
    if count is None or count < 1 or (isinstance(channels, int) and channels % count):
        return None
    return _like(x)


@type_rule("LayerNormalization")
def layer_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Mean and inverse deviation have length 1 in the axes that are normalised."""
    x, scale, offset = operand(node, 0), operand(node, 1), operand(node, 2)
    stash = dtype_numbered(node.attributes.get("stash_type", DType.FLOAT32.value))
    if x is None or scale is None or stash is None or not stash.is_floating:
        return None
    axis = _axis(node, len(x.shape))
    if axis is None or not spreads_over(scale.shape, x.shape):
        return None
    if offset is not None and not spreads_over(offset.shape, x.shape):
        return None
    types = _like(x)
    if len(node.outputs) > 1:
        kept = (*x.shape[:axis], *(1 for _ in x.shape[axis:]))
        types += [TensorType(stash, kept)] * 2
    return types


@type_rule("RMSNormalization")
def rms_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Of the scale's element type, which onnx's inference takes for the first input's."""
    x, scale = operand(node, 0), operand(node, 1)
    if x is None or scale is None or x.dtype is not scale.dtype:
        return None
    if _axis(node, len(x.shape)) is None or not spreads_over(scale.shape, x.shape):
        return None
    return _like(x)


@type_rule("LRN")
def local_response_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Over so many neighbouring channels."""
    x, size = operand(node, 0), integer(node, "size")
    if x is None or len(x.shape) < 2 or size is None or size < 1:
        return None
    return _like(x)


@type_rule("LpNormalization")
def lp_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Along one axis."""
    x = operand(node, 0)
    return None if x is None or _axis(node, len(x.shape)) is None else _like(x)


@type_rule("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Along all axes but the channels', unless others are named."""
    x, axes = operand(node, 0), node.attributes.get("axes", [0, 2, 3])
    if x is None or not isinstance(axes, list):
        return None
    return None if axes_of(axes, len(x.shape)) is None else _like(x)


@type_rule("RotaryEmbedding")
def rotary_embedding(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(batch, heads, sequence, size), or (batch, sequence, heads * size) with ``num_heads``."""
    x, cosines, sines = operand(node, 0), operand(node, 1), operand(node, 2)
    if x is None or cosines is None or sines is None or len(x.shape) not in (3, 4):
        return None
    rank = 2 if operand(node, 3) is not None else 3
    if len(cosines.shape) != rank or is_contradiction(cosines.shape, sines.shape):
        return None
    if len(x.shape) == 3:
        heads, width = integer(node, "num_heads"), x.shape[2]
        if heads is None or heads < 1 or (isinstance(width, int) and width % heads):
            return None
    return _like(x)
