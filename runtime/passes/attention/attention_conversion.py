"""ONNX's own Attention as a device's, where it does no more than that."""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np

from ...graph import DType, Node, TensorType, Value
from ...graph.sym_array import array_of_lengths
from ...graph.sym_int import identity_of
from ..rewriting.graph_patch import GraphPatch
from ..rewriting.matching import (
    are_float32,
    does_broadcast,
    dtype_of,
    static_shape,
)

__all__ = ["CausalMasks", "convert_attention"]

CausalMasks = dict[Hashable, Value]
"""Queries and keys -> the constant of one graph that excludes later keys."""

_MASK = 3
"""Which input is the mask; what comes after it belongs to a cache of keys and values."""


def convert_attention(node: Node, causal: CausalMasks, domain: str) -> GraphPatch | None:
    """Rewrite a standard Attention of 3-D float32 inputs as one of ``domain``.

    None if it does more, that is: a cache, a softcap, heads that share keys, a causal mask beside a
    given one, or a use of its other outputs. ``causal`` is filled with the masks that are made.
    """
    heads = int(node.attributes.get("q_num_heads", 0))
    shapes = [static_shape(value) for value in node.inputs[:_MASK]]
    sizes = [shape for shape in shapes if shape is not None and len(shape) == 3 and 0 not in shape]
    if len(sizes) != _MASK or not heads or not _is_plain(node):
        return None
    (batch, rows, width), keys, values = sizes
    if width % heads or keys != values or (keys[0], keys[2]) != (batch, width):
        return None
    mask = node.input_at(_MASK)
    if mask is not None and not _is_mask(mask, (batch, heads, rows, keys[1])):
        return None
    patch = GraphPatch(f"convert Attention {node.name!r}")
    inputs = list(node.inputs[:_MASK])
    if mask is not None:
        inputs.append(_as_addition(patch, node, mask))
    elif node.attributes.get("is_causal", 0):
        inputs.append(_causal_mask(patch, causal, rows, keys[1]))
    scale = float(node.attributes.get("scale", 1 / math.sqrt(width // heads)))
    made = Value(node.outputs[0].name, node.outputs[0].type)
    attributes = {"num_heads": heads, "scale": scale}
    converted = Node("Attention", inputs, [made], attributes, name=node.name, domain=domain)
    return patch.add(converted, before=node).replace(node.outputs[0], made).remove(node)


def _is_plain(node: Node) -> bool:
    attributes = node.attributes
    has_cache = any(value is not None for value in node.inputs[_MASK + 1 :])
    is_used = any(value.uses or value.is_graph_output for value in node.outputs[1:])
    is_doubly_masked = attributes.get("is_causal", 0) and node.input_at(_MASK) is not None
    has_heads = attributes.get("q_num_heads") == attributes.get("kv_num_heads")
    has_softcap = attributes.get("softcap", 0) != 0
    precision = attributes.get("softmax_precision", DType.FLOAT32.value)
    return (
        has_heads
        and precision == DType.FLOAT32.value
        and not (has_cache or is_used or is_doubly_masked or has_softcap)
        and are_float32(*node.inputs[:_MASK])
    )


def _is_mask(mask: Value, target: tuple[int, ...]) -> bool:
    """True for a mask that tells of each key: a shorter one, of one key as well, is padded."""
    shape = static_shape(mask)
    if shape is None or not does_broadcast(shape, target) or shape[-1:] != target[-1:]:
        return False
    return dtype_of(mask) in (DType.BOOL, DType.FLOAT32)


def _as_addition(patch: GraphPatch, node: Node, mask: Value) -> Value:
    """Turn a boolean mask, True for what counts, into one to add."""
    if dtype_of(mask) is not DType.BOOL:
        return mask
    pair = []
    for name, number in (("zero", 0.0), ("excluded", -np.inf)):
        array = np.array(number, np.float32)
        pair.append(Value(f"{node.name}_{name}", TensorType(DType.FLOAT32, ()), array))
        patch.add_constant(pair[-1])
    made = Value(f"{mask.name}_added", TensorType(DType.FLOAT32, static_shape(mask)))
    patch.add(Node("Where", (mask, *pair), [made], name=f"{node.name}_Where"), before=node)
    return made


def _causal_mask(patch: GraphPatch, known: CausalMasks, rows: int, keys: int) -> Value:
    """Return the constant that excludes later keys: (rows, keys), -inf above the diagonal."""
    key = identity_of(rows), identity_of(keys)
    if key not in known:
        array = array_of_lengths(_excluding_later, (rows, keys), (rows, keys))
        known[key] = Value("causal_mask", TensorType(DType.FLOAT32, (rows, keys)), array)
        patch.add_constant(known[key])
    return known[key]


def _excluding_later(rows: int, keys: int) -> np.ndarray:
    return np.triu(np.full((rows, keys), -np.inf, np.float32), 1)
