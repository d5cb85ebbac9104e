"""Windows over stored numbers: what they see, and what stands for 0 around it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....runtime.graph import DType, Node, TensorType, Value
from ....runtime.lowering.window import Window, transposed_window, window_of
from ....runtime.passes import GraphPatch
from ....runtime.passes.folding.constant_cache import ConstantCache
from ....runtime.passes.rewriting.matching import dtype_of, static_shape
from ..kernels.windows.phases import Phases, phase_weights, phases_of
from ..onednn.post_ops import CPU_DOMAIN
from .quantization_facts import Weights, signed

__all__ = [
    "added_constant",
    "conv_window",
    "padded",
    "phased",
    "phases_value",
    "seen_weights",
    "shuffled",
]

Array = np.ndarray[Any, Any]


def conv_window(node: Node, data: Value) -> Window | None:
    """Return the window of a Conv or ConvTranspose whose shapes fit each other.

    Others are refused elsewhere.
    """
    shape, weights = static_shape(data), static_shape(node.inputs[1])
    result = static_shape(node.outputs[0])
    if shape is None or weights is None or result is None:
        return None
    if not len(shape) == len(weights) == len(result) or len(shape) > 5:
        return None
    if node.op_type == "ConvTranspose":
        return transposed_window(node, weights[2:], shape[2:], result[2:])
    window = window_of(node, weights[2:], shape[2:])
    window.fitted(shape[2:], result[2:])
    return window


def padded(patch: GraphPatch, node: Node, data: Value, window: Window, zero_point: int) -> Value:
    """Add a Pad with the number that stands for 0."""
    shape, dtype = static_shape(data), dtype_of(data)
    assert shape is not None
    assert dtype is not None
    pads = np.array([0, 0, *window.pads_begin, 0, 0, *window.pads_end], np.int64)
    number = np.array(zero_point, dtype.numpy)
    operands = [
        added_constant(patch, f"{node.name}_{what}", content)
        for what, content in (("pads", pads), ("zero_point", number))
    ]
    sizes = zip(shape[2:], window.pads_begin, window.pads_end, strict=True)
    wide = (*shape[:2], *(length + begin + end for length, begin, end in sizes))
    padded = Value(f"{node.name}_padded", TensorType(dtype, wide))
    patch.add(Node("Pad", (data, *operands), (padded,), {}, name=f"{node.name}_pad"), node, (node,))
    return padded


def seen_weights(
    node: Node, data: Value, weights: Weights, window: Window, cache: ConstantCache
) -> tuple[Weights, Window]:
    """Leave out the taps that see pads alone, as those of a wide dilation on a small map do."""
    shape, result = static_shape(data), static_shape(node.outputs[0])
    assert shape is not None
    assert result is not None
    taps = window.seen_taps(shape[2:], result[2:])
    if all(len(kept) == size for kept, size in zip(taps, window.kernel, strict=True)):
        return weights, window
    places = (slice(None), slice(None), *(slice(kept.start, kept.stop) for kept in taps))
    array = cache.get(
        f"taps {taps}", (weights.array,), lambda: np.ascontiguousarray(weights.array[places])
    )
    return weights._replace(array=array), window.with_taps(taps)


def phased(
    node: Node,
    data: Value,
    weights: Weights,
    bias: Array | None,
    window: Window,
    cache: ConstantCache,
) -> tuple[Weights, Array | None, Phases]:
    """Make the weights and bias of a ConvTranspose those of the convolution of its phases."""
    shape, result = static_shape(data), static_shape(node.outputs[0])
    assert shape is not None
    assert result is not None
    phases = phases_of(window, shape[2:], result[2:])
    times, groups = math.prod(phases.phases), int(node.attributes.get("group", 1))
    columns = weights.array.shape[1]

    def repeated(row: Array) -> Array:
        """Bring a row of one group's columns, or of all groups', to groups x phases x columns."""
        shape = (groups, times, columns)
        return cache.get(
            f"phases {shape}",
            (row,),
            lambda: np.broadcast_to(row.reshape(-1, 1, columns), shape).reshape(-1),
        )

    array = cache.get(
        f"phases {phases.window.kernel} {phases.phases} {window.dilations} {groups}",
        (weights.array,),
        lambda: phase_weights(signed(weights.array), window, phases, groups),
    )
    scales = weights.scales if weights.scales.size == 1 else repeated(weights.scales)
    return Weights(array, scales), None if bias is None else repeated(bias), phases


def phases_value(result: Value, phases: Phases) -> Value:
    """Make the value that the convolution has as its result; ``result`` itself if that is it."""
    shape, dtype = static_shape(result), dtype_of(result)
    assert shape is not None
    assert dtype is not None
    if phases.are_trivial and shape[2:] == phases.counts:
        return result
    channels = math.prod(phases.phases) * shape[1]
    return Value(f"{result.name}_phases", TensorType(dtype, (shape[0], channels, *phases.counts)))


def shuffled(node: Node, made: Value, result: Value, phases: Phases) -> Node:
    """Make the node that brings phases to where they belong."""
    attributes = {"phases": [*phases.phases], "cut": [*phases.cut]}
    if "group" in node.attributes:
        attributes["group"] = node.attributes["group"]
    name = f"{node.name}_shuffle"
    return Node("PixelShuffle", (made,), (result,), attributes, name=name, domain=CPU_DOMAIN)


def added_constant(patch: GraphPatch, name: str, array: Array) -> Value:
    """Add a constant to a patch; the array is kept and must not be written any more."""
    made = Value(name, TensorType(DType.of(array.dtype), array.shape), array)
    patch.add_constant(made)
    return made
