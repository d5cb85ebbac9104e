"""CRC-32 of memory and of parts of files: by our extension where it runs, else by zlib."""

from __future__ import annotations

import importlib
import os
import zlib
from typing import Any

__all__ = ["checksum", "file_checksum"]

_CHUNK_BYTES = 1 << 20


def _extension() -> Any:
    try:
        return importlib.import_module("._crc32", __package__)
    except ImportError:  # it was not built, or this processor lacks what it needs
        return None


_native = _extension()


def checksum(content: Any, before: int = 0) -> int:
    """Return the CRC-32 of a buffer, behind parts that gave ``before``; releases the GIL."""
    if _native is None:
        return zlib.crc32(content, before)
    found: int = _native.of_memory(content, before)
    return found


def file_checksum(descriptor: int, start: int, size_bytes: int) -> int | None:
    """Return the CRC-32 of a part of a file; None where it ends before that.

    Reads past all mappings; releases the GIL. Raises OSError.
    """
    if _native is not None:
        known: int | None = _native.of_file(descriptor, start, size_bytes)
        return known
    found, end = 0, start + size_bytes
    memory = memoryview(bytearray(min(_CHUNK_BYTES, size_bytes)))
    while start < end:
        count = os.preadv(descriptor, [memory[: end - start]], start)
        if not count:
            return None
        found = zlib.crc32(memory[:count], found)
        start += count
    return found
