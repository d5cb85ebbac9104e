"""Weights as the native kernels for int8 read them: chunks of a panel of columns. Pure.

Source of the layouts: native/int8/native_int8.c.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "CHUNK_BYTES",
    "PANEL",
    "PackedProduct",
    "fits_squares",
    "packed_depthwise",
    "packed_product",
    "packed_squares",
]

Array = np.ndarray[Any, Any]

PANEL = 16
"""Columns of the result that are computed together."""
CHUNK_BYTES = 4
"""Of a row of data, that one instruction multiplies."""

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

    Chunks whose pairs may overflow are halved if they are few, and wide otherwise.
    """
    groups, columns, numbers = weights.shape
    panels = -(-columns // PANEL)
    padded = np.zeros((groups, panels * PANEL, -(-numbers // CHUNK_BYTES) * CHUNK_BYTES), np.int8)
    padded[:, :columns, :numbers] = weights
    wholes = padded.view(np.uint32).reshape(groups * panels, PANEL, -1).transpose(0, 2, 1)
    chunks = np.ascontiguousarray(wholes).view(np.int8)
    chunks = chunks.reshape(groups * panels, -1, PANEL, CHUNK_BYTES)
    is_large = _is_too_large(chunks)
    is_mixed = bool(is_large.sum() > _MOST_HALVED * is_large.size)
    starts = np.zeros((groups * panels, PANEL), np.int32)
    if is_signed:
        starts[:] = -128 * chunks.sum(axis=(1, 3), dtype=np.int64)
    made: list[Array] = []
    places: list[Array] = []
    for panel, large in zip(chunks, is_large, strict=True):
        (again,) = np.nonzero(large)
        if is_mixed:
            (narrow,) = np.nonzero(~large)
            made += [_bytes_of(panel[narrow]), _bytes_of(_widened(panel[again]))]
            places += [narrow, len(panel) + (2 * again[:, np.newaxis] + [0, 1]).reshape(-1)]
        else:
            halves = panel[again] >> 1
            whole = panel.copy()
            whole[again] -= halves
            made += [_bytes_of(whole), _bytes_of(halves)]
            places += [np.concatenate((np.arange(len(panel)), again)), again[:0]]
    return PackedProduct(np.concatenate(made), _joined(places), starts, is_mixed)


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


def packed_squares(weights: Array) -> Array:
    """Pack int8 weights (columns, channels, 3, 3) for int8_squares; channels are even.

    Doubled along both axes they are sums and differences of whole numbers, of up to 9 * 128.
    """
    columns, channels = weights.shape[:2]
    panels = -(-columns // PANEL)
    padded = np.zeros((panels * PANEL, channels, 3, 3), np.int16)
    padded[:columns] = weights
    spread = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int16)
    made = np.einsum("ai,pcij,bj->abpc", spread, padded, spread, optimize=True)
    made = made.reshape(16, panels, PANEL, channels // 2, 2).transpose(1, 0, 3, 2, 4)
    return _bytes_of(made.astype(np.int16, copy=False))


def fits_squares(weights: Array) -> bool:
    """True if four times the largest sums of packed_squares(weights) fit 32 bits."""
    sizes = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(axis=1)
    return bool(4 * _MOST_DATA * sizes.max(initial=0) < 1 << 31)


def _is_too_large(chunks: Array) -> Array:
    """Return which chunks of which panels hold a pair that may overflow: both of one sign."""
    pairs = np.add(chunks[..., ::2], chunks[..., 1::2], dtype=np.int16)
    pairs = pairs.reshape(*chunks.shape[:2], -1)
    found: Array = np.maximum(pairs.max(axis=2), -pairs.min(axis=2)) > _LARGEST_PAIR
    return found


def _joined(places: list[Array]) -> Array:
    """Write where each list ends, and behind the ends the lists."""
    ends = np.cumsum([0, *map(len, places)])
    return np.concatenate((ends, *places)).astype(np.int32)


def _bytes_of(array: Array) -> Array:
    found: Array = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    return found
