"""Steps that change where elements lie: convert_layout, crop and pad."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from ...errors import TensorError
from ..graph import Value
from .layout import Layout, axis_order
from .state import State, constant, integers

__all__ = ["PaddingMode", "convert_layout", "crop", "pad", "transpose"]


class PaddingMode(enum.Enum):
    """What ``pad`` fills with: a number, or what is near the edge, without or with the edge."""

    CONSTANT = "constant"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"


def convert_layout(state: State, wanted: Layout) -> State:
    """Put the axes in another order, by their names; names that are new become axes of length 1.

    An unknown layout, here or there, leaves the tensor as it is.
    """
    if not wanted:
        return state
    if not state.layout or state.layout == wanted:
        return state.of(state.value, layout=wanted)
    order = axis_order(state.layout, wanted, state.rank)
    moved = transpose(state, [axis for axis in order if axis is not None])
    added = [place for place, axis in enumerate(order) if axis is None]
    if added:
        moved = moved.of(state.node("Unsqueeze", moved.value, integers(*added)))
    return moved.of(moved.value, layout=wanted)


def transpose(state: State, order: Sequence[int]) -> State:
    """Put the axes in another order, by their numbers."""
    if sorted(order) != list(range(state.rank)):
        raise TensorError(
            f"the order {list(order)} is none of {state.rank} axes; name each of 0 to "
            f"{state.rank - 1} once"
        )
    layout = state.layout.permuted(order)
    if list(order) == sorted(order):
        return state.of(state.value, layout=layout)
    return state.of(state.node("Transpose", state.value, perm=list(order)), layout=layout)


def crop(state: State, begin: Sequence[int], end: Sequence[int]) -> State:
    """Keep from ``begin`` to before ``end`` on the first axes; negative numbers count from the end.

    Raises TensorError for more axes than there are, and where nothing would be left.
    """
    if len(begin) > state.rank:
        raise TensorError(
            f"{len(begin)} axes are cropped, and the tensor has {state.rank}; give a number for "
            f"each axis, 0 and {_WHOLE} for one that stays"
        )
    axes = range(len(begin))
    made = state.node("Slice", state.value, integers(*begin), integers(*end), integers(*axes))
    cropped = state.of(made)
    if 0 in cropped.shape:
        raise TensorError(f"nothing is left of {state.text()}; begin has to lie before end")
    return cropped


_WHOLE = np.iinfo(np.int64).max


def pad(
    state: State, begin: Sequence[int], end: Sequence[int], value: float, mode: PaddingMode
) -> State:
    """Add elements before and after each axis; negative numbers take some away."""
    if len(begin) != state.rank:
        raise TensorError(
            f"{len(begin)} axes are padded, and the tensor has {state.rank}; give a number for "
            f"each axis, 0 for one that stays"
        )
    if mode is PaddingMode.SYMMETRIC:
        return _pad_with_edges(state, begin, end)
    content = None
    if mode is PaddingMode.CONSTANT:
        content = constant(np.asarray(value).astype(state.dtype.numpy))
    pads = integers(*begin, *end)
    return state.of(state.node("Pad", state.value, pads, content, mode=mode.value))


def _pad_with_edges(state: State, begin: Sequence[int], end: Sequence[int]) -> State:
    """Repeat from the edge on, for which ONNX's Pad has no mode: pick the elements one by one."""
    made: Value = state.value
    for axis, (before, after) in enumerate(zip(begin, end, strict=True)):
        if not before and not after:
            continue
        length = state.shape[axis]
        if not isinstance(length, int) or min(before, after) < 0 or max(before, after) > length:
            raise TensorError(
                f"axis {axis} of {state.text()} cannot be padded symmetrically by {before} and "
                f"{after}: that wants a known length, and pads of 0 to that length"
            )
        places = np.pad(np.arange(length, dtype=np.int64), (before, after), mode="symmetric")
        made = state.node("Gather", made, constant(places), axis=axis)
    return state.of(made)
