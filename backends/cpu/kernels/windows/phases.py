"""Windows that write, as windows that read at strides of 1. Pure.

Of all that a ConvTranspose writes, place ``block * stride + phase`` is the sum, over the taps
``phase``, ``phase + stride``, ..., of those taps times one element each, neighbours of each other.
So a phase of all blocks is a convolution without strides, the phases of all axes are channels of
one, and its result is the whole one but for the order in memory. A window that the strides do not
divide gets zeros at its end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .....runtime.graph.sym_int import larger
from .....runtime.lowering.window import Window

__all__ = ["Phases", "has_few_zeros", "has_no_zeros", "phase_weights", "phases_of"]

Array = np.ndarray[Any, Any]

_MOST_ZEROS = 2
"""Products with the zeros that fill windows up, those with weights included, for each of these."""


class Phases(NamedTuple):
    """The window that reads, and for each axis of its result: phases, and places cut off in front.

    ``counts`` are its lengths: there are ``counts * phases`` places, of which those behind the
    wanted ones are cut off as well.
    """

    window: Window
    phases: tuple[int, ...]
    cut: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def are_trivial(self) -> bool:
        """True if each place has its own block, and none is cut off in front."""
        return all(count == 1 for count in self.phases) and not any(self.cut)


def has_few_zeros(window: Window) -> bool:
    """True if filling windows up does not make more than twice as many products of them."""
    return _filled(window) <= _MOST_ZEROS * math.prod(window.kernel)


def has_no_zeros(window: Window) -> bool:
    """True if no zeros are multiplied, which would make NaN of infinities beside the window."""
    return _filled(window) == math.prod(window.kernel)


def _filled(window: Window) -> int:
    return math.prod(
        window.kernel[axis] if stride == 1 else _blocks(window.reach(axis), stride) * stride
        for axis, stride in enumerate(window.strides)
    )


def phases_of(window: Window, lengths: Sequence[int], made: Sequence[int]) -> Phases:
    """View a window that writes from axes of ``lengths`` to axes of ``made``."""
    axes = [
        _axis(window, axis, length, count)
        for axis, (length, count) in enumerate(zip(lengths, made, strict=True))
    ]
    taps, dilations, begins, ends, phases, cut, counts = map(tuple, zip(*axes, strict=True))
    ones = (1,) * len(axes)
    return Phases(Window(taps, ones, dilations, begins, ends), phases, cut, counts)


def _axis(window: Window, axis: int, length: int, made: int) -> tuple[int, ...]:
    """Return taps, dilation, pads at both ends, phases, what is cut off, and the result's length.

    The only element of an axis writes its window once, at whatever stride: all are its phases.
    """
    taps, stride, dilation = window.kernel[axis], window.strides[axis], window.dilations[axis]
    if length == dilation == 1:
        stride = taps
    if stride > 1:
        taps, dilation = _blocks(window.reach(axis), stride), 1
    reach = (taps - 1) * dilation
    begin = window.pads_begin[axis]
    unread = begin // stride
    if unread > reach:
        unread = reach
    cut = begin - unread * stride
    count = larger(_blocks(cut + made, stride), length - unread)
    return taps, dilation, reach - unread, count + unread - length, stride, cut, count


def phase_weights(array: Array, window: Window, phases: Phases, groups: int = 1) -> Array:
    """Arrange the weights of a ConvTranspose, (C, M / groups, ...), as those of a Conv.

    They are (groups x phases x M / groups, C / groups, ...).
    """
    if groups > 1:
        parts = np.split(array, groups)
        return np.concatenate([phase_weights(part, window, phases) for part in parts])
    read, made = array.shape[:2]
    pairs = list(zip(phases.window.kernel, phases.phases, strict=True))
    places, whole = [], []
    for axis, (taps, count) in enumerate(pairs):
        step = 1 if count == 1 else window.dilations[axis]
        places.append(slice(0, (window.kernel[axis] - 1) * step + 1, step))
        whole.append(taps * count)
    filled = np.zeros((read, made, *whole), array.dtype)
    filled[(slice(None), slice(None), *places)] = array
    rank = len(pairs)
    split = filled.reshape(read, made, *(number for pair in pairs for number in pair))
    turned = np.flip(split, tuple(2 + 2 * axis for axis in range(rank)))
    order = [*(3 + 2 * axis for axis in range(rank)), 1, 0, *(2 + 2 * axis for axis in range(rank))]
    channels = math.prod(phases.phases) * made
    found: Array = np.ascontiguousarray(
        turned.transpose(order).reshape(channels, read, *phases.window.kernel)
    )
    return found


def _blocks(length: int, size: int) -> int:
    return -(-length // size)
