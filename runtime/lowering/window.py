"""What Conv, ConvTranspose and the pools say of the windows that they slide. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...errors import GraphError
from ..graph import Node
from ..graph.sym_int import larger
from ..type_inference.families.windows import SAME, halves, same_padding, window_reach

__all__ = ["Window", "transposed_window", "window_of"]


class Window(NamedTuple):
    """One number for each spatial axis; dilation 1 is a dense window."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]

    @property
    def is_single(self) -> bool:
        """True if it sees one element, and all of them: a 1 x 1 convolution."""
        ones = all(number == 1 for number in (*self.kernel, *self.strides))
        return ones and not any((*self.pads_begin, *self.pads_end))

    def reach(self, axis: int) -> int:
        """Return how many elements of an axis the window spans."""
        return window_reach(self.kernel[axis], self.dilations[axis])

    def seen_taps(self, lengths: Sequence[int], counts: Sequence[int]) -> tuple[range, ...]:
        """Return the taps of each axis by which results see elements, those in between included.

        Others see pads alone, and pads are as wide as to be left out with them: a window of
        dilation 36 on four elements is one tap. At least one tap is left of each axis.
        """
        return tuple(
            self._seen(axis, length, count)
            for axis, (length, count) in enumerate(zip(lengths, counts, strict=True))
        )

    def _seen(self, axis: int, length: int, count: int) -> range:
        size, step = self.kernel[axis], self.dilations[axis]
        begin, end = self.pads_begin[axis], self.pads_end[axis]
        last_place = (count - 1) * self.strides[axis] - begin
        taps = [
            tap
            for tap in range(size)
            if tap * step - begin < length and last_place + tap * step >= 0
        ]
        if not taps:
            return range(size)
        return range(min(taps[0], begin // step), max(taps[-1] + 1, size - end // step))

    def unpadded(self) -> Window:
        """Return the window over what has its pads already."""
        none = (0,) * len(self.kernel)
        return self._replace(pads_begin=none, pads_end=none)

    def with_taps(self, taps: Sequence[range]) -> Window:
        """Keep these taps of each axis; pads grow smaller by what the others reached."""
        begins, ends, sizes = [], [], []
        for axis, kept in enumerate(taps):
            step, size = self.dilations[axis], self.kernel[axis]
            begins.append(self.pads_begin[axis] - kept.start * step)
            ends.append(self.pads_end[axis] - (size - kept.stop) * step)
            sizes.append(len(kept))
        return self._replace(kernel=tuple(sizes), pads_begin=tuple(begins), pads_end=tuple(ends))

    def fitted(self, lengths: Sequence[int], counts: Sequence[int]) -> Window:
        """Pad at the end just as much as ``counts`` results read; ``lengths`` are the input's.

        Raises GraphError for more results than windows fit, the last one only in part, or fewer.
        """
        for axis, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            room = length + self.pads_begin[axis] + self.pads_end[axis] - self.reach(axis)
            least, most = room // self.strides[axis] + 1, -(-room // self.strides[axis]) + 1
            if not larger(least, 0) <= count <= larger(most, 0):
                raise GraphError(
                    f"a window of {self.kernel[axis]} fits {least} to {most} times into axis "
                    f"{axis + 2}, not {count} times"
                )
        ends = (
            (count - 1) * stride + self.reach(axis) - length - begin
            for axis, (length, count, stride, begin) in enumerate(
                zip(lengths, counts, self.strides, self.pads_begin, strict=True)
            )
        )
        return self._replace(pads_end=tuple(larger(end, 0) for end in ends))


def window_of(node: Node, kernel: Sequence[int], lengths: Sequence[int]) -> Window:
    """Read a window from a node's attributes; ``lengths`` are the input's spatial ones."""
    rank = len(kernel)
    strides, dilations = _numbers(node, "strides", rank, 1), _numbers(node, "dilations", rank, 1)
    pads = _numbers(node, "pads", 2 * rank, 0)
    window = Window(tuple(kernel), strides, dilations, pads[:rank], pads[rank:])
    auto = _auto_pad(node)
    if auto == "NOTSET":
        return window
    if auto == "VALID":
        return window.unpadded()
    pairs = [
        same_padding(length, window.reach(axis), strides[axis], auto)
        for axis, length in enumerate(lengths)
    ]
    begins, ends = (begin for begin, _ in pairs), (end for _, end in pairs)
    return window._replace(pads_begin=tuple(begins), pads_end=tuple(ends))


def transposed_window(
    node: Node, kernel: Sequence[int], lengths: Sequence[int], made: Sequence[int]
) -> Window:
    """Read a window that writes; ``made`` are the result's lengths, ``lengths`` the input's.

    Pads are what is cut off of all that windows write. A length that is given, or that ``auto_pad``
    gives, is centred. An end is negative where the result goes on behind the last window.
    """
    auto = _auto_pad(node)
    window = window_of(node, kernel, kernel)
    extra = _numbers(node, "output_padding", len(kernel), 0)
    is_told = node.attributes.get("output_shape") and not node.attributes.get("pads")
    is_centred = is_told or auto in SAME
    begins, ends = [], []
    for axis, length in enumerate(lengths):
        written = window.strides[axis] * (length - 1) + window.reach(axis)
        begin = window.pads_begin[axis]
        if is_centred:
            begin, _ = halves(larger(written + extra[axis] - made[axis], 0), auto)
        begins.append(begin)
        ends.append(written - begin - made[axis])
    return window._replace(pads_begin=tuple(begins), pads_end=tuple(ends))


def _auto_pad(node: Node) -> str:
    return node.text("auto_pad", "NOTSET")


def _numbers(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    given = node.attributes.get(name)
    return tuple(int(number) for number in given) if given else (default,) * count
