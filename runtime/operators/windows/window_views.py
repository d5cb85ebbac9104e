"""Where the windows of a convolution or a pool lie; pure arithmetic, one Axis per spatial axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...type_inference.families.windows import (
    SAME,
    same_count,
    same_padding,
    window_count,
    window_reach,
)
from ..plain_operators import Array

__all__ = ["Axis", "offsets", "pad", "plan_axes", "shifted"]


@dataclass(frozen=True, slots=True)
class Axis:
    """The windows along one axis: window ``o`` reads ``o * stride + k * dilation - begin``.

    ``length`` is the input's, ``begin`` and ``end`` are the padding that was asked for, and
    ``count`` is how many windows there are. The last may reach beyond the padding (``overhang``).
    """

    length: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    count: int

    @property
    def overhang(self) -> int:
        """How far the last window reaches beyond the input's end."""
        last = (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation
        return max(last - self.begin - self.length + 1, 0)

    def starts(self, offset: int) -> slice:
        """Slice a padded axis to what position ``offset`` of each window reads."""
        first = offset * self.dilation
        return slice(first, first + (self.count - 1) * self.stride + 1, self.stride)

    def positions(self, offset: int) -> Array:
        """List where position ``offset`` of each window lies in the input, or outside of it."""
        return np.arange(self.count) * self.stride + offset * self.dilation - self.begin


def plan_axes(
    lengths: Sequence[int],
    kernel: Sequence[int],
    *,
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: bool = False,
) -> list[Axis]:
    """Lay windows over an input, by the rules of ONNX's Conv and pools.

    ``pads`` are all begins, then all ends. Raises ValueError where attributes do not fit the rank,
    or a window does not fit into the input.
    """
    rank = len(lengths)
    strides = strides or [1] * rank
    dilations = dilations or [1] * rank
    pads = pads or [0] * (2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ValueError(
            f"{rank} spatial axes, but kernel_shape {list(kernel)}, strides {list(strides)}, "
            f"dilations {list(dilations)}, pads {list(pads)}"
        )
    if auto_pad not in ("", "NOTSET", "VALID", *SAME):
        raise ValueError(f"auto_pad {auto_pad!r} is not NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    axes = []
    for index, length in enumerate(lengths):
        k, stride, dilation = kernel[index], strides[index], dilations[index]
        span = window_reach(k, dilation)
        if auto_pad in SAME:
            count = same_count(length, stride)
            begin, end = same_padding(length, span, stride, auto_pad)
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (pads[index], pads[rank + index])
            count = window_count(length, begin, end, span, stride, ceil_mode)
        if count < 0 or (count == 0 and length + begin + end > 0 and span > length + begin + end):
            raise ValueError(
                f"a window of {span} does not fit into axis {index + 2} of length {length} with "
                f"padding ({begin}, {end})"
            )
        axes.append(Axis(length, k, stride, dilation, begin, end, count))
    return axes


def offsets(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """Walk the positions inside a window, the last axis fastest."""
    return itertools.product(*[range(axis.kernel) for axis in axes])


def pad(x: Array, axes: Sequence[Axis], value: object) -> Array:
    """Pad the spatial axes (all but the first two) as far as the windows reach; x if nowhere."""
    # Negative padding crops.
    crop = tuple(slice(max(-axis.begin, 0), None) for axis in axes)
    if any(axis.begin < 0 for axis in axes):
        x = x[(slice(None), slice(None), *crop)]
    widths = [(max(axis.begin, 0), axis.overhang) for axis in axes]
    if not any(before or after for before, after in widths):
        return x
    shape = [size + sum(width) for size, width in zip(x.shape[2:], widths, strict=True)]
    padded = np.full((*x.shape[:2], *shape), value, x.dtype)
    inner = [
        slice(before, before + size) for (before, _), size in zip(widths, x.shape[2:], strict=True)
    ]
    padded[(slice(None), slice(None), *inner)] = x
    return padded


def shifted(padded: Array, axes: Sequence[Axis], offset: Sequence[int]) -> Array:
    """View what one position of all windows reads: (N, C, *counts)."""
    starts = [axis.starts(place) for axis, place in zip(axes, offset, strict=True)]
    return padded[(slice(None), slice(None), *starts)]
