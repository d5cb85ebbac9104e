"""Pad: a box of the input in a larger tensor that is filled, or mirrored, or repeated.

Works on elements of any type. A negative pad takes elements away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....runtime.graph import Node
from ..operand import Operand
from ..plan_builder import PlanBuilder
from ..strided_copy import strided_copy
from ..taking import table_operand, take
from ..walk import row_major
from .registry import integers_of, kernel

Array = np.ndarray[Any, Any]
_PadOfAxis = tuple[int, int]


def _refuses(node: Node) -> str | None:
    mode = _mode(node)
    if mode not in ("constant", *_PLACES):
        return f"OPENCL has Pad with mode in {['constant', *_PLACES]}, not {mode!r}"
    return None


@kernel("Pad", dtypes=None, refuses=_refuses, constant_inputs=(1, 3))
def lower_pad(node: Node, builder: PlanBuilder) -> None:
    """Lower padding; what it fills with may come with the run."""
    source = node.inputs[0]
    assert source is not None
    (result,) = node.outputs
    operand = builder.operand(source)
    pads = _pads(node, len(operand.shape))
    if not any(map(any, pads)):
        builder.define(result, operand)
    elif _mode(node) == "constant":
        made = builder.result(result)
        strided_copy(builder, _filling(node, builder, made), made, made.shape, [0] * len(pads))
        _copy_kept(operand, made, pads, builder)
    elif 0 in builder.shape(result):
        builder.result(result)
    else:
        made = _repeat_around(operand, pads, _PLACES[_mode(node)], builder)
        builder.define(result, made)


def _filling(node: Node, builder: PlanBuilder, made: Operand) -> Operand:
    """Return the place of the one element that constant padding fills with."""
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None or (value.constant is not None and not value.constant.size):
        return table_operand(builder, np.zeros(1, made.dtype.numpy))
    return builder.operand(value)


def _copy_kept(
    source: Operand, target: Operand, pads: Sequence[_PadOfAxis], builder: PlanBuilder
) -> None:
    """Copy what is left of the input to its place in the result."""
    kept = [
        max(0, length + min(0, before) + min(0, after))
        for length, (before, after) in zip(source.shape, pads, strict=True)
    ]
    come, go = row_major(source.shape), row_major(target.shape)
    strided_copy(
        builder,
        source,
        target,
        kept,
        come,
        sum(max(0, -before) * stride for (before, _), stride in zip(pads, come, strict=True)),
        go,
        sum(max(0, before) * stride for (before, _), stride in zip(pads, go, strict=True)),
    )


def _repeat_around(
    operand: Operand,
    pads: Sequence[_PadOfAxis],
    find_places: Callable[[Array, int], Array],
    builder: PlanBuilder,
) -> Operand:
    """Take elements by index, axis by axis."""
    for axis, (before, after) in enumerate(pads):
        if (before, after) == (0, 0):
            continue
        shape = list(operand.shape)
        places = np.arange(-before, shape[axis] + after)
        table = find_places(places, shape[axis]).astype(np.int32)
        shape[axis] = len(table)
        made = builder.temporary(shape, operand.dtype)
        take(builder, operand, made, axis, table_operand(builder, table))
        operand = made
    return operand


def _reflect(places: Array, length: int) -> Array:
    period = max(1, 2 * (length - 1))
    turned = places % period
    return np.minimum(turned, period - turned) if length > 1 else np.zeros_like(places)


_PLACES: Mapping[str, Callable[[Array, int], Array]] = {
    "edge": lambda places, length: np.clip(places, 0, length - 1),
    "reflect": _reflect,
    "wrap": lambda places, length: places % length,
}


def _pads(node: Node, rank: int) -> list[_PadOfAxis]:
    """Give (before, after) for every axis."""
    given = integers_of(node, 1) or []
    axes = integers_of(node, 3)
    axes = list(range(rank)) if axes is None else [axis % rank for axis in axes]
    found = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        found[axis] = given[index], given[len(axes) + index]
    return found


def _mode(node: Node) -> str:
    mode = node.attributes.get("mode", "constant")
    return mode.decode() if isinstance(mode, bytes) else str(mode)
