"""Weights as the native kernels for int8 read them: chunks of a panel of columns. Pure.

Source of the layouts: native/int8/native_int8.c.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...native.int8_sizes import CHUNK, FLAT, PANEL
from ...onednn.bindings import aligned_bytes

__all__ = [
    "PackedProduct",
    "PackedTaps",
    "fits_squares",
    "packed_depthwise",
    "packed_product",
    "packed_squares",
    "packed_taps",
]

Array = np.ndarray[Any, Any]

_MOST_DATA = 255
_LARGEST_PAIR = 128
"""That two weights of one sign add up to, so that products with data up to 255 fit 16 bits."""
_MOST_HALVED = 0.05
"""Of all chunks: with more, widening rows of data is faster than multiplying halves of weights."""
_ORDER = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15]
"""Columns of a panel in the order in which words of two vectors are interleaved."""


class PackedProduct(NamedTuple):
    """Weights of a matmul: bytes of chunks, where these belong, and what sums start with.

    ``is_mixed``: some are wide, so that rows of data have to be there in 16 bits, too.
    """

    weights: Array
    places: Array
    starts: Array
    is_mixed: bool


def packed_product(weights: Array, *, is_signed: bool) -> PackedProduct:
    """Pack int8 weights (groups, columns of one, numbers of a row); ``is_signed`` are the data.

    Chunks whose pairs may overflow are halved if they are few, and wide otherwise. Panels are
    looked at one by one: malloc keeps what large temporary arrays leave behind.
    """
    groups, columns, numbers = weights.shape
    panels = [(group, first) for group in range(groups) for first in range(0, columns, PANEL)]
    row_chunks = -(-numbers // CHUNK)
    is_large = np.array([_is_too_large(_panel(weights, *place)) for place in panels])
    is_mixed = bool(is_large.sum() > _MOST_HALVED * is_large.size)
    starts = np.zeros((len(panels), PANEL), np.int32)
    places: list[Array] = []
    chunk_count = len(panels) * row_chunks + int(is_large.sum())
    made = aligned_bytes(chunk_count * CHUNK * PANEL)
    end = 0
    for index, (place, large) in enumerate(zip(panels, is_large, strict=True)):
        panel = _panel(weights, *place)
        if is_signed:
            starts[index] = -128 * panel.sum(axis=(0, 2), dtype=np.int64)
        (again,) = np.nonzero(large)
        if is_mixed:
            (narrow,) = np.nonzero(~large)
            parts = [panel[narrow], _widened(panel[again])]
            places += [narrow, row_chunks + (2 * again[:, np.newaxis] + [0, 1]).reshape(-1)]
        else:
            halves = panel[again] >> 1
            panel[again] -= halves
            parts = [panel, halves]
            places += [np.concatenate((np.arange(row_chunks), again)), again[:0]]
        for part in parts:
            begin, end = end, end + part.nbytes
            made[begin:end] = _bytes_of(part)
    return PackedProduct(made, _joined(places), starts, is_mixed)


def _panel(weights: Array, group: int, first: int) -> Array:
    """Copy the chunks of the columns from ``first`` on: (chunks, columns, 4), 0 beyond the last."""
    found = weights[group, first : first + PANEL]
    columns, numbers = found.shape
    padded = np.zeros((PANEL, -(-numbers // CHUNK) * CHUNK), np.int8)
    padded[:columns, :numbers] = found
    chunks = padded.view(np.uint32).T.copy().view(np.int8)
    return chunks.reshape(-1, PANEL, CHUNK)


def _widened(chunks: Array) -> Array:
    """Make two chunks of 16 bits of each of 8 bits: (chunks, columns, 4) to (.., 2, columns, 2)."""
    return chunks.astype(np.int16).reshape(-1, PANEL, 2, 2).transpose(0, 2, 1, 3)


def packed_depthwise(weights: Array) -> Array:
    """Pack int8 weights (channels, taps), each channel's own: pairs of taps in 16 bits."""
    channels, taps = weights.shape
    panels, pairs = -(-channels // PANEL), -(-taps // 2)
    padded = np.zeros((panels * PANEL, 2 * pairs), np.int16)
    padded[:channels, :taps] = weights
    wide = padded.reshape(panels, PANEL, pairs, 2)[:, _ORDER].transpose(0, 2, 1, 3)
    return _bytes_of(wide)


class PackedTaps(NamedTuple):
    """Weights of channels that are apart, in the order of the flat kernel, and rows in that order.

    ``starts`` are what sums begin with; a row of the model's is taken in ``order``.
    """

    weights: Array
    starts: Array
    order: Array


def packed_taps(weights: Array, *, is_signed: bool) -> PackedTaps:
    """Pack int8 weights (channels, taps) for int8_taps; ``is_signed`` are the data.

    Vectors go over the channels until one begins with the first of them again.
    """
    channels, taps = weights.shape
    words = np.arange(FLAT)
    numbers = words // 4 % 4 * 16 + words // 16 * 4 + words % 4
    turns = channels // math.gcd(channels, FLAT)
    order = (np.arange(turns)[:, np.newaxis] * FLAT + numbers) % channels
    quads = -(-taps // CHUNK)
    padded = np.zeros((channels, quads * CHUNK), np.int8)
    padded[:, :taps] = weights
    chunks = padded[order].reshape(turns, FLAT, quads, CHUNK).transpose(0, 2, 1, 3)
    sums = weights.sum(axis=1, dtype=np.int64) * (-128 if is_signed else 0)
    return PackedTaps(
        _bytes_of(chunks), sums.astype(np.int32)[order].reshape(-1), order.reshape(-1)
    )


def packed_squares(weights: Array) -> Array:
    """Pack int8 weights (columns, channels, 3, 3) for int8_squares; channels are even.

    Doubled along both axes they are sums and differences of whole numbers, of up to 9 * 128.
    """
    columns, channels = weights.shape[:2]
    spread = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int16)
    panel_bytes = 16 * channels * PANEL * 2
    made = aligned_bytes(-(-columns // PANEL) * panel_bytes)
    for index, first in enumerate(range(0, columns, PANEL)):
        padded = np.zeros((PANEL, channels, 3, 3), np.int16)
        padded[: columns - first] = weights[first : first + PANEL]
        panel = np.einsum("ai,pcij,bj->abpc", spread, padded, spread, optimize=True)
        panel = panel.reshape(16, PANEL, channels // 2, 2).transpose(0, 2, 1, 3)
        made[index * panel_bytes :][:panel_bytes] = _bytes_of(panel.astype(np.int16, copy=False))
    return made


def fits_squares(weights: Array) -> bool:
    """True if four times the largest sums of packed_squares(weights) fit 32 bits."""
    largest = max(
        (int(np.abs(row.astype(np.int16)).sum(dtype=np.int64)) for row in weights), default=0
    )
    return 4 * _MOST_DATA * largest < 1 << 31


def _is_too_large(panel: Array) -> Array:
    """Return which chunks of a panel hold a pair that may overflow: both of one sign."""
    pairs = np.add(panel[..., ::2], panel[..., 1::2], dtype=np.int16).reshape(len(panel), -1)
    found: Array = np.maximum(pairs.max(axis=1), -pairs.min(axis=1)) > _LARGEST_PAIR
    return found


def _joined(places: list[Array]) -> Array:
    """Write where each list ends, and behind the ends the lists."""
    ends = np.cumsum([0, *map(len, places)])
    return np.concatenate((ends, *places), dtype=np.int32, casting="same_kind")


def _bytes_of(array: Array) -> Array:
    found: Array = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    return found
