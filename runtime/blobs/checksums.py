"""CRC-32 of memory and of parts of files: by zlib-ng where it is installed, else by zlib."""

from __future__ import annotations

import importlib
import os
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

from ...executors.late_imports import late_imports

__all__ = ["checksum", "file_checksum"]

_CHUNK_BYTES = 1 << 20
"""Of a file, read into memory that stays in the cache."""


@cache
def _crc32() -> Callable[[Any, int], int]:
    try:
        with late_imports:
            fast: Callable[[Any, int], int] = importlib.import_module("zlib_ng.zlib_ng").crc32
    except ImportError:
        return zlib.crc32
    return fast


def checksum(content: Any, before: int = 0) -> int:
    """Return the CRC-32 of a buffer, behind parts that gave ``before``; releases the GIL."""
    return _crc32()(content, before)


def file_checksum(descriptor: int, start: int, size_bytes: int) -> int | None:
    """Return the CRC-32 of a part of a file; None where it ends before that.

    Reads past all mappings; releases the GIL. Raises OSError.
    """
    crc32, found, end = _crc32(), 0, start + size_bytes
    memory = memoryview(bytearray(min(_CHUNK_BYTES, size_bytes)))
    while start < end:
        count = os.preadv(descriptor, [memory[: end - start]], start)
        if not count:
            return None
        found = crc32(memory[:count], found)
        start += count
    return found
