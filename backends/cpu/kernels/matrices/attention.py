"""Attention: two matmuls of many heads, and softmax in between; the CPU's own node and ONNX's.

The heads are never moved: queries, keys and values are read as strided views of wherever they lie,
often one packed projection, and the second matmul writes the heads side by side, as the next layer
wants them. Scores are float32, in the memory of one buffer; scale, mask and softmax are one native
pass over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node, TensorType, Value
from ...native.step_runner import double_bits
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..movement.copies import broadcast
from ..registry import kernel
from .epilogue import repeated
from .matmul import matmul

__all__ = ["ELEMENT_CODES"]

Array = np.ndarray[Any, Any]

ELEMENT_CODES = {DType.FLOAT32: 0, DType.BFLOAT16: 1}
"""Element types as the kernels of native_rows.c take them."""

_MASK = 3


@kernel("Attention", domain=CPU_DOMAIN)
def lower_attention(node: Node, builder: PlanBuilder) -> None:
    """Lower softmax(scale * Q K' + mask) V for all heads; inputs are (batch, rows, width)."""
    heads = int(node.attributes["num_heads"])
    _lower(node, builder, (heads, heads), _given_mask)


def _refuse(node: Node) -> str | None:
    """Return which of ONNX's extras a node asks for."""
    attributes = node.attributes
    if any(value is not None for value in node.inputs[_MASK + 1 :]):
        return "CPU has Attention without past keys and values"
    if any(value.uses or value.is_graph_output for value in node.outputs[1:]):
        return "CPU has Attention with its first output only"
    if attributes.get("softcap", 0.0) != 0.0:
        return "CPU has Attention without softcap"
    if attributes.get("softmax_precision", DType.FLOAT32.value) != DType.FLOAT32.value:
        return "CPU has Attention with softmax in float32"
    if {_known_rank(value) for value in node.inputs[:3]} not in ({3}, {4}):
        return "CPU has Attention for inputs that are known to have 3 or 4 axes"
    return None


def _known_rank(value: Value | None) -> int | None:
    kind = None if value is None else value.type
    return len(kind.shape) if isinstance(kind, TensorType) and kind.shape is not None else None


@kernel("Attention", refuses=_refuse)
def lower_standard_attention(node: Node, builder: PlanBuilder) -> None:
    """Lower ONNX's node of 3 or 4 axes, with boolean, causal and added masks."""
    counts = [int(node.attributes.get(f"{name}_num_heads", 0)) for name in ("q", "kv")]
    _lower(node, builder, (counts[0], counts[1]), _standard_mask)


def _lower(
    node: Node,
    builder: PlanBuilder,
    heads: tuple[int, int],
    mask_of: Callable[[Node, PlanBuilder, Sequence[int]], Operand | None],
) -> None:
    result = node.outputs[0]
    held = builder.held_dtype(result)
    if len(builder.shape(result)) not in (3, 4):
        raise builder.contradiction(f"a result of {builder.shape(result)}")
    made = builder.result(result, Layout.plain(builder.shape(result), held))
    if not made.layout.count:
        return
    counts = (heads[0], heads[1], heads[1])
    q, k, v = (
        _matrices(builder, value, count, held)
        for value, count in zip(node.inputs[:3], counts, strict=True)
    )
    shape = (*q.shape[:3], k.shape[2])
    size = q.shape[3]
    is_shared = k.shape[1] > 0 and q.shape[1] % k.shape[1] == 0
    keys, values = (q.shape[0], k.shape[1], k.shape[2], size), (*k.shape[:3], v.shape[3])
    if not is_shared or k.shape != keys or v.shape != values:
        raise builder.contradiction(f"queries {q.shape}, keys {k.shape}, values {v.shape}")
    builder.expect_count(result, math.prod((*q.shape[:3], v.shape[3])))
    if not shape[-1]:  # nothing to attend to
        builder.native("fill", (made,), (held.item_bytes, made.layout.count, 0))
        return
    scores = builder.temporary(Layout.plain(shape, DType.FLOAT32))
    groups = shape[1] // k.shape[1]
    if size:
        matmul(builder, _grouped(q, groups), _turned(_shared(k, groups)), _grouped(scores, groups))
    else:
        builder.native("fill", (scores,), (4, scores.layout.count, 0))
    scale = float(node.attributes.get("scale", 1 / math.sqrt(max(1, size))))
    mask = mask_of(node, builder, shape)
    zero_empty_rows = bool(node.attributes.get("zero_empty_rows", 0))
    probabilities = _probabilities(builder, scores, mask, scale, zero_empty_rows, held)
    target = _grouped(_split(made, heads[0]), groups)
    matmul(builder, _grouped(probabilities, groups), _shared(v, groups), target)


def _matrices(builder: PlanBuilder, value: Value | None, heads: int, dtype: DType) -> Operand:
    """View a value as (batch, heads, rows, width of a head), as it lies if it can."""
    assert value is not None
    operand = builder.operand(value)
    strides = operand.layout.strides
    if operand.dtype is not dtype or strides is None or strides[-1] != 1 or 0 in strides:
        operand = builder.plain(value, dtype)
    shape = operand.shape
    if len(shape) not in (3, 4) or (len(shape) == 3 and (heads < 1 or shape[2] % heads)):
        raise builder.contradiction(f"{value.name!r} is {list(shape)}, and not of {heads} heads")
    return _split(operand, heads)


def _split(operand: Operand, heads: int) -> Operand:
    """View (batch, rows, width) by heads; what has four axes is split already."""
    if len(operand.shape) == 4:
        return operand
    batch, rows, width = operand.shape
    strides = operand.layout.strides
    assert strides is not None
    size = width // heads
    taken = (strides[0], size, strides[1], 1)
    return operand.viewed(Layout.plain((batch, heads, rows, size), operand.dtype, taken))


def _turned(operand: Operand) -> Operand:
    """View matrices with their last two axes swapped."""
    shape, strides = operand.shape, operand.layout.strides
    assert strides is not None
    dims = (*shape[:-2], shape[-1], shape[-2])
    taken = (*strides[:-2], strides[-1], strides[-2])
    return operand.viewed(Layout.plain(dims, operand.dtype, taken))


def _grouped(operand: Operand, groups: int) -> Operand:
    """View the heads in ``groups`` groups, each of which shares keys and values."""
    return operand if groups == 1 else _with_groups(operand, groups)


def _shared(operand: Operand, groups: int) -> Operand:
    """View the heads of keys or values as shared by the heads of a group."""
    return operand if groups == 1 else _with_groups(operand, 1)


def _with_groups(operand: Operand, groups: int) -> Operand:
    batch, heads, *matrix = operand.shape
    strides = operand.layout.strides
    assert strides is not None
    dims = (batch, heads // groups, groups, *matrix)
    taken = (strides[0], strides[1] * groups, *strides[1:])
    return operand.viewed(Layout.plain(dims, operand.dtype, taken))


def _probabilities(
    builder: PlanBuilder,
    scores: Operand,
    mask: Operand | None,
    scale: float,
    zero_empty_rows: bool,
    held: DType,
) -> Operand:
    """Emit the softmax of scaled and masked scores, in place where the element type allows."""
    made = scores
    if held is DType.BFLOAT16:
        made = builder.temporary(Layout.plain(scores.shape, held))
    operands = [scores, made]
    strides: Sequence[int] = (0, 0, 0)
    if mask is not None:
        operands.append(mask)
        assert mask.layout.strides is not None
        strides = mask.layout.strides[:3]
    parameters = (
        ELEMENT_CODES[made.dtype],
        *scores.shape,
        double_bits(scale),
        mask is not None,
        *strides,
        zero_empty_rows,
    )
    builder.native("attention_probabilities", operands, parameters)
    if made.dtype is held:
        return made
    smaller = builder.temporary(Layout.plain(scores.shape, held))
    builder.move(made, smaller)
    return smaller


def _given_mask(node: Node, builder: PlanBuilder, shape: Sequence[int]) -> Operand | None:
    """View the mask with the scores' axes: repeated by strides of 0, its last axis in one piece."""
    mask = node.input_at(_MASK)
    if mask is None:
        return None
    given = builder.shape(mask)
    if given[-1:] == tuple(shape[-1:]):
        return broadcast(builder.plain(mask, DType.FLOAT32), shape)
    return broadcast(repeated(mask, (*given[:-1], shape[-1]), builder), shape)


def _standard_mask(node: Node, builder: PlanBuilder, shape: Sequence[int]) -> Operand | None:
    """Return what is added to the scores; numpy computes what passes have not made of one piece."""
    mask = node.input_at(_MASK)
    is_causal = bool(node.attributes.get("is_causal", 0))
    rows, keys = shape[-2:]
    later = np.triu(np.full((rows, keys), -np.inf, np.float32), 1) if is_causal else None
    if mask is None:
        return None if later is None else broadcast(builder.constant_operand(later), shape)
    given = builder.shape(mask)
    if not 1 <= len(given) <= len(shape) or given[-1] > max(1, keys):
        raise builder.contradiction(f"a mask of {list(given)} for scores of {list(shape)}")
    is_whole = given[-1] >= keys
    if later is None and is_whole and builder.dtype(mask) is DType.FLOAT32:
        return _given_mask(node, builder, shape)
    made = builder.temporary(Layout.plain(shape, DType.FLOAT32))

    def fill(array: Array, target: Array) -> None:
        added = np.where(array, 0, -np.inf) if array.dtype == np.bool_ else array
        if not is_whole:  # keys that the mask does not reach are excluded
            missing = [(0, 0)] * (added.ndim - 1) + [(0, keys - added.shape[-1])]
            added = np.pad(added, missing, constant_values=-np.inf)
        target[...] = added if later is None else added + later

    builder.numpy(fill, (builder.plain(mask), made))
    return made
