"""Windows of convolutions and pools: what attributes and shapes say of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Window", "auto_pad_of", "window_of"]


@dataclass(frozen=True)
class Window:
    """For each spatial axis: the kernel's length, steps, and the padding before and after."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def is_single(self) -> bool:
        """True if it sees one element, and all of them: a 1 x 1 convolution."""
        ones = all(number == 1 for number in (*self.kernel, *self.strides))
        return ones and not any((*self.begins, *self.ends))


def window_of(
    attributes: Mapping[str, Any], kernel: Sequence[int], lengths: Sequence[int]
) -> Window:
    """Read strides, dilations, pads and auto_pad; ``lengths`` are the input's spatial ones."""
    rank = len(kernel)
    strides = _numbers(attributes, "strides", rank)
    dilations = _numbers(attributes, "dilations", rank)
    pads = [int(number) for number in attributes.get("pads") or [0] * (2 * rank)]
    begins, ends = pads[:rank], pads[rank:]
    auto_pad = auto_pad_of(attributes)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for axis, length in enumerate(lengths):
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            wanted = (-(-length // strides[axis]) - 1) * strides[axis] + reach
            total = max(0, wanted - length)
            small, large = total // 2, total - total // 2
            begins[axis], ends[axis] = (
                (small, large) if auto_pad == "SAME_UPPER" else (large, small)
            )
    elif auto_pad == "VALID":
        begins, ends = [0] * rank, [0] * rank
    return Window(tuple(kernel), strides, dilations, tuple(begins), tuple(ends))


def auto_pad_of(attributes: Mapping[str, Any]) -> str:
    """Return the attribute ``auto_pad``."""
    given = attributes.get("auto_pad", "NOTSET")
    return given.decode() if isinstance(given, bytes) else str(given)


def _numbers(attributes: Mapping[str, Any], name: str, rank: int) -> tuple[int, ...]:
    return tuple(int(number) for number in attributes.get(name) or [1] * rank)
