"""Sizes and limits of the native kernels for int8: those of native/int8/product.h, by its names."""

from __future__ import annotations

__all__ = [
    "CHUNK",
    "FLAT",
    "MAX_OTHERS",
    "MAX_STEPS",
    "MOST_LINES",
    "MOST_TAPS",
    "PANEL",
    "SLACK",
    "SQUARE_SLACK",
    "TILE_ROWS",
]

TILE_ROWS, PANEL = 6, 16
"""Rows and columns of the result that are computed together."""

CHUNK = 4
"""Bytes of a row of data that one instruction multiplies."""

SLACK, SQUARE_SLACK = 32, 64
"""Bytes behind the packed data of a part, of a product and of a place of its squares."""

FLAT = 64
"""Numbers of a row of the result that int8_taps computes together."""

MOST_TAPS, MOST_LINES = 64, 64
"""Of a window of a depthwise convolution, and lines of the source that it spans in int8_taps."""

MAX_OTHERS, MAX_STEPS = 8, 32
"""Operands of steps, and steps."""
