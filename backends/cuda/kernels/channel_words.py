"""Neighbouring channels of a place in one work-item: a map with channels last has them together."""

from __future__ import annotations

from ....runtime.graph import DType
from ...accelerator.elementwise.c_types import FLOATS
from ...accelerator.elementwise.element_words import ElementWords

__all__ = ["channel_words"]

_BYTES = 8


def channel_words(dtype: DType, channels: int) -> ElementWords:
    """Choose the block for maps of this many channels: one where they do not fill words."""
    count = _BYTES // dtype.item_bytes
    return ElementWords(dtype, count if dtype in FLOATS and channels % count == 0 else 1)
