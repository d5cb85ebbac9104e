"""What a Pad node says about each axis, once its inputs are known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import GraphError
from ..graph import Node

__all__ = [
    "AxisPad",
    "find_unknown_mode",
    "is_filling",
    "kept_lengths",
    "pads_of",
    "repeated_indices",
]

Array = np.ndarray[Any, Any]

AxisPad = tuple[int, int]
"""How many elements come before and after an axis; negative numbers take elements away."""


def find_unknown_mode(node: Node) -> str | None:
    """Return why the node's mode has no meaning, or None if it has one."""
    mode, known = _mode(node), ["constant", *_PLACES]
    return None if mode in known else f"Pad has mode in {known}, not {mode!r}"


def is_filling(node: Node) -> bool:
    """True if one element fills what is padded; else elements of the input are repeated."""
    return _mode(node) == "constant"


def pads_of(node: Node, rank: int) -> list[AxisPad]:
    """Return the pads of every axis; ``pads`` and ``axes`` of the node are constants.

    Raises GraphError for axes that there are not, and where there are not two numbers for each.
    """
    given = node.integers_at(1) or []
    axes = node.integers_at(3)
    axes = list(range(rank)) if axes is None else axes
    if len(given) != 2 * len(axes) or any(not -rank <= axis < rank for axis in axes):
        raise GraphError(
            f"{node.op} (node {node.name!r}) has pads {given} for the axes {axes} of {rank}"
        )
    axes = [axis % rank for axis in axes]
    found = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        found[axis] = given[index], given[len(axes) + index]
    return found


def kept_lengths(shape: Sequence[int], pads: Sequence[AxisPad]) -> list[int]:
    """Return how much of each axis of the input is left."""
    return [
        max(0, length + min(0, before) + min(0, after))
        for length, (before, after) in zip(shape, pads, strict=True)
    ]


def repeated_indices(node: Node, length: int, pad: AxisPad) -> Array:
    """Return the element of an axis of this length that each padded element repeats; int32.

    Only what negative pads leave is repeated.
    """
    before, after = pad
    first, (kept,) = max(0, -before), kept_lengths((length,), (pad,))
    places = np.arange(-max(0, before), kept + max(0, after))
    return (first + _PLACES[_mode(node)](places, kept)).astype(np.int32)


def _reflect(places: Array, length: int) -> Array:
    period = max(1, 2 * (length - 1))
    turned = places % period
    return np.minimum(turned, period - turned) if length > 1 else np.zeros_like(places)


_PLACES: Mapping[str, Callable[[Array, int], Array]] = {
    "edge": lambda places, length: np.clip(places, 0, length - 1),
    "reflect": _reflect,
    "wrap": lambda places, length: places % length,
}


def _mode(node: Node) -> str:
    return node.text("mode", "constant")
