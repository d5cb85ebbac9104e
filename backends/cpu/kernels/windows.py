"""Sliding windows of Conv and of pools: strides, dilations and paddings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_int64
from dataclasses import dataclass, replace
from typing import Any

from ....runtime.graph import Node, TensorType, Value

__all__ = [
    "MAX_SPATIAL_RANK",
    "Window",
    "auto_pad_of",
    "dims_array",
    "find_bad_window",
    "spatial_rank_of",
    "window_of",
]

MAX_SPATIAL_RANK = 3
"""oneDNN convolves and pools over one to three axes."""


@dataclass(frozen=True)
class Window:
    """One number for each spatial axis; dilation 1 is a dense window."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]

    def reach(self, axis: int) -> int:
        """Return how many elements of an axis the window spans."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def positions(self, axis: int, place: int) -> range:
        """Return where the window of one result reads, counted from the input's first element."""
        start = place * self.strides[axis] - self.pads_begin[axis]
        return range(start, start + self.reach(axis), self.dilations[axis])

    def fitted(self, lengths: Sequence[int], counts: Sequence[int]) -> Window:
        """Pad at the end just as much as so many results read; ``lengths`` are the input's."""
        ends = (
            (count - 1) * stride + self.reach(axis) - length - begin
            for axis, (length, count, stride, begin) in enumerate(
                zip(lengths, counts, self.strides, self.pads_begin, strict=True)
            )
        )
        return replace(self, pads_end=tuple(max(0, end) for end in ends))


def window_of(node: Node, kernel: Sequence[int], lengths: Sequence[int]) -> Window:
    """Read a window from a node's attributes; ``lengths`` are the input's spatial ones."""
    rank = len(kernel)
    strides = _numbers(node.attributes, "strides", rank, 1)
    dilations = _numbers(node.attributes, "dilations", rank, 1)
    pads = _numbers(node.attributes, "pads", 2 * rank, 0)
    window = Window(tuple(kernel), strides, dilations, pads[:rank], pads[rank:])
    auto = auto_pad_of(node)
    if auto == "NOTSET":
        return window
    if auto == "VALID":
        return replace(window, pads_begin=(0,) * rank, pads_end=(0,) * rank)
    totals = [_same_total(window, axis, length) for axis, length in enumerate(lengths)]
    less = tuple(total // 2 for total in totals)
    more = tuple(total - total // 2 for total in totals)
    begin, end = (less, more) if auto == "SAME_UPPER" else (more, less)
    return replace(window, pads_begin=begin, pads_end=end)


def find_bad_window(node: Node, value: Value | None) -> str | None:
    """Say why a window cannot run whatever the shapes are, or None; ``value`` has its rank."""
    rank = spatial_rank_of(node, value)
    if rank is None:
        return f"CPU needs to know the rank of {node.op}'s input"
    if not 1 <= rank <= MAX_SPATIAL_RANK:
        return f"CPU has {node.op} over 1 to {MAX_SPATIAL_RANK} spatial axes, not over {rank}"
    if min(node.attributes.get("pads") or [0]) < 0:
        return f"CPU has {node.op} without negative pads"
    return None


def dims_array(numbers: Sequence[int]) -> object:
    """Make a dnnl_dims_t."""
    return (c_int64 * len(numbers))(*numbers)


def auto_pad_of(node: Node) -> str:
    """Return the attribute ``auto_pad``."""
    auto = node.attributes.get("auto_pad", "NOTSET")
    return auto.decode() if isinstance(auto, bytes) else str(auto)


def spatial_rank_of(node: Node, value: Value | None) -> int | None:
    """Say over how many axes a node slides, from ``kernel_shape`` or a value's rank, if known."""
    kernel = node.attributes.get("kernel_shape")
    if kernel:
        return len(kernel)
    known = None if value is None else value.type
    if not isinstance(known, TensorType) or known.shape is None:
        return None
    return len(known.shape) - 2


def _same_total(window: Window, axis: int, length: int) -> int:
    stride = window.strides[axis]
    count = -(-length // stride)
    return max(0, (count - 1) * stride + window.reach(axis) - length)


def _numbers(attributes: Mapping[str, Any], name: str, count: int, default: int) -> tuple[int, ...]:
    given = attributes.get(name)
    return tuple(int(number) for number in given) if given else (default,) * count
