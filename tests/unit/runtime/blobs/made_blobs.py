"""Blobs of frames that a test gives."""

from __future__ import annotations

from aioinfer.runtime.blobs.writer import BlobWriter

__all__ = ["blob_of"]


def blob_of(frames: dict[str, bytes]) -> bytes:
    writer = BlobWriter()
    for name, content in frames.items():
        writer.add_bytes(name, content)
    return b"".join(writer.chunks())
