"""How a node is written for maps whose channels are last: a rule for each operator. Pure.

A rule says None for a node that has to have channels first. It looks at types, attributes and
constants, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ....runtime.graph import Node, Value
from ....runtime.lowering.reduction import reduced_axes
from ....runtime.lowering.window import window_of
from ....runtime.passes.rewriting.matching import (
    dtype_of,
    integers_of,
    rank_of,
    static_shape,
)
from ...accelerator.elementwise.c_types import FLOATS
from ...accelerator.elementwise.fused_step import ACCELERATOR_DOMAIN, FUSED_ELEMENTWISE
from ...accelerator.kernels.epilogue import EPILOGUE_START
from ...accelerator.passes.elementwise_fusion import is_elementwise
from ..domain import CUDA_DOMAIN
from .layouts import is_free, is_map, to_last, turned_axis

__all__ = ["InputForm", "TurnedNode", "is_fused", "rank_read", "turn"]

InputForm = Literal["as it is", "turned"] | np.ndarray
"""What becomes of an input: it stays, is a map or what broadcasts to one, or is a new constant."""


_CONVOLUTIONS = ("Conv", "ConvTranspose")


@dataclass(frozen=True)
class TurnedNode:
    """A node for channels last: the operator, and what becomes of inputs and outputs.

    ``is_wanted``: it is much faster so, and turned whatever that costs its neighbours. Outputs are
    turned unless ``keeps_output``, where both orders give the same.
    """

    op_type: str
    inputs: tuple[InputForm, ...]
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    is_wanted: bool = False
    keeps_output: bool = False


def rank_read(node: Node, index: int) -> int:
    """Return how many axes an input has for a node: as many as its result, where it broadcasts."""
    is_extra = node.op_type in _CONVOLUTIONS and index >= EPILOGUE_START
    is_operand = is_fused(node) or is_extra
    return rank_of(node.outputs[0] if is_operand else node.inputs[index]) or 0


def turn(node: Node) -> TurnedNode | None:
    """Return how a node is written for channels last; None if it is not."""
    if is_fused(node):
        return _elementwise(node)
    if node.domain == ACCELERATOR_DOMAIN:
        return _RULES[node.op_type](node) if node.op_type in _CONVOLUTIONS else None
    rule = _RULES.get(node.op_type)
    return rule(node) if rule is not None and not node.domain else None


def is_fused(node: Node) -> bool:
    """True for an elementwise node, or a fused group of them."""
    is_fused = node.domain == ACCELERATOR_DOMAIN and node.op_type == FUSED_ELEMENTWISE
    return is_fused or is_elementwise(node)


def _elementwise(node: Node) -> TurnedNode | None:
    made = node.outputs[0]
    operands = [value for value in node.inputs if value is not None]
    if not is_map(made) or not all(_can_be_operand(value, made) for value in operands):
        return None
    forms: list[InputForm] = ["turned" for _ in node.inputs]
    return TurnedNode(node.op_type, tuple(forms), node.domain, node.attributes)


def _first_turned(node: Node) -> list[InputForm]:
    """Take the first input for a map; the others stay."""
    forms: list[InputForm] = ["as it is" for _ in node.inputs]
    forms[0] = "turned"
    return forms


def _can_be_operand(value: Value, made: Value) -> bool:
    """True for what can be turned at no cost that the choice does not know of."""
    shape, rank = static_shape(value), rank_of(made)
    if shape is None or rank is None or len(shape) > rank:
        return False
    wide = (1,) * (rank - len(shape)) + shape
    return value.is_constant or len(shape) == rank or is_free(wide, to_last(rank))


def _conv(node: Node) -> TurnedNode | None:
    source, weights = node.inputs[:2]
    filters, made = static_shape(weights), node.outputs[0]
    if not is_map(source) or not is_map(made) or not is_map(weights) or filters is None:
        return None
    lengths = static_shape(source)
    assert lengths is not None
    window = window_of(node, filters[2:], lengths[2:])
    is_forward = node.op_type == "Conv"
    has_negative_pads = is_forward and min(*window.pads_begin, *window.pads_end) < 0
    if dtype_of(source) not in FLOATS or has_negative_pads:
        return None
    forms = _first_turned(node)
    for index in range(EPILOGUE_START, len(forms)):
        forms[index] = "turned"
    return TurnedNode(
        node.op_type, tuple(forms), CUDA_DOMAIN, node.attributes, is_wanted=is_forward
    )


def _pool(node: Node) -> TurnedNode | None:
    is_ready = is_map(node.inputs[0]) and is_map(node.outputs[0])
    if not is_ready or len(node.outputs) > 1 or dtype_of(node.inputs[0]) not in FLOATS:
        return None
    return TurnedNode(node.op_type, ("turned",), CUDA_DOMAIN, node.attributes)


def _along_axis(default: int) -> Callable[[Node], TurnedNode | None]:
    """Move the attribute ``axis``; only first inputs, or all of a Concat, are maps."""

    def rule(node: Node) -> TurnedNode | None:
        rank = rank_of(node.outputs[0])
        if rank is None or not all(map(is_map, node.outputs)):
            return None
        maps = len(node.inputs) if node.op_type == "Concat" else 1
        if not all(map(is_map, node.inputs[:maps])):
            return None
        axis = turned_axis(int(node.attributes.get("axis", default)), rank)
        forms = _first_turned(node)
        forms[:maps] = ["turned" for _ in range(maps)]
        return TurnedNode(node.op_type, tuple(forms), "", {**node.attributes, "axis": axis})

    return rule


def _resize(node: Node) -> TurnedNode | None:
    rank = rank_of(node.inputs[0])
    if rank is None or not is_map(node.inputs[0]) or not is_map(node.outputs[0]):
        return None
    axes = node.attributes.get("axes")
    if axes:
        moved = [turned_axis(int(axis), rank) for axis in axes]
        moved_axes = {**node.attributes, "axes": moved}
        return TurnedNode(node.op_type, tuple(_first_turned(node)), "", moved_axes)
    return _with_lists(node, dict.fromkeys(range(1, len(node.inputs)), rank))


def _pad(node: Node) -> TurnedNode | None:
    rank = rank_of(node.inputs[0])
    is_ready = is_map(node.inputs[0]) and is_map(node.outputs[0])
    if rank is None or not is_ready or node.input_at(1) is None:
        return None
    if node.input_at(3) is not None:
        return _with_axes(node, 3)
    return _with_lists(node, {1: rank})


def _with_lists(node: Node, ranks: Mapping[int, int]) -> TurnedNode | None:
    """Reorder constant inputs, by index, that have one number, or a begin and an end, an axis."""
    forms = _first_turned(node)
    for index, rank in ranks.items():
        value = node.input_at(index)
        if value is None or (value.constant is not None and not value.constant.size):
            continue
        if value.constant is None or value.constant.size not in (rank, 2 * rank):
            return None
        parts = value.constant.reshape(-1, rank)[:, to_last(rank)]
        forms[index] = np.ascontiguousarray(parts).reshape(-1)
    return TurnedNode(node.op_type, tuple(forms), "", node.attributes)


def _slice(node: Node) -> TurnedNode | None:
    is_ready = is_map(node.inputs[0]) and is_map(node.outputs[0])
    starts = integers_of(node.input_at(1))
    return _with_axes(node, 3) if is_ready and starts is not None else None


def _with_axes(node: Node, index: int) -> TurnedNode | None:
    """Move the axes that a constant input names."""
    rank, axes = rank_of(node.inputs[0]), integers_of(node.input_at(index))
    if rank is None or axes is None:
        return None
    forms = _first_turned(node)
    forms[index] = np.array([turned_axis(axis, rank) for axis in axes], np.int64)
    return TurnedNode(node.op_type, tuple(forms), "", node.attributes)


def _reduce(node: Node) -> TurnedNode | None:
    rank, given = rank_of(node.inputs[0]), node.input_at(1)
    if rank is None or not is_map(node.inputs[0]) or (given is not None and not given.is_constant):
        return None
    axes = reduced_axes(node, rank)
    keeps_rank = bool(node.attributes.get("keepdims", 1))
    has_channels, has_places = 1 in axes, set(range(2, rank)) <= axes
    if not axes or not (keeps_rank or has_channels or has_places):
        return None
    moved = sorted(turned_axis(axis, rank) for axis in axes)
    attributes = {name: item for name, item in node.attributes.items() if name != "axes"}
    forms: tuple[InputForm, ...] = ("turned", np.array(moved, np.int64))
    return TurnedNode(node.op_type, forms, "", attributes, keeps_output=not keeps_rank)


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_RULES: Mapping[str, Callable[[Node], TurnedNode | None]] = {
    "AveragePool": _pool,
    "Concat": _along_axis(1),
    "Conv": _conv,
    "ConvTranspose": _conv,
    "GlobalAveragePool": _pool,
    "GlobalMaxPool": _pool,
    "LogSoftmax": _along_axis(-1),
    "MaxPool": _pool,
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "Softmax": _along_axis(-1),
    "Split": _along_axis(0),
    **{f"Reduce{name}": _reduce for name in _REDUCTIONS},
}
"""By operator of ONNX; elementwise ones have a rule of their own."""
