"""How many windows of a convolution or a pool lie on an axis, and what SAME pads. Pure."""

from __future__ import annotations

from ...graph.sym_int import larger

__all__ = ["SAME", "halves", "same_count", "same_padding", "window_count", "window_reach"]

SAME = ("SAME_UPPER", "SAME_LOWER")


def window_reach(kernel: int, dilation: int) -> int:
    """Return how many elements a window spans."""
    return (kernel - 1) * dilation + 1


def window_count(
    length: int, begin: int, end: int, reach: int, stride: int, rounds_up: bool = False
) -> int:
    """Count the places of a window; 0 or less where it fits nowhere."""
    room = length + begin + end - reach
    count = (room + (stride - 1 if rounds_up else 0)) // stride + 1
    # A last window that starts in the padding after the axis sees nothing of it, and is left out.
    return count - 1 if rounds_up and (count - 1) * stride >= length + begin else count


def same_count(length: int, stride: int) -> int:
    """Count the windows that auto_pad makes room for where it is SAME_UPPER or SAME_LOWER."""
    return -(-length // stride)


def same_padding(length: int, reach: int, stride: int, auto_pad: str) -> tuple[int, int]:
    """Return the padding at the begin and the end that makes room for ``same_count`` windows."""
    total = larger((same_count(length, stride) - 1) * stride + reach - length, 0)
    return halves(total, auto_pad)


def halves(total: int, auto_pad: str) -> tuple[int, int]:
    """Divide padding; the odd element is at the end for SAME_UPPER, else at the begin."""
    less = total // 2
    return (less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less)
