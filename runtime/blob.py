"""Blobs: exported networks, framed and checksummed; no pickle.

Layout: magic, version (u16), length of the device name (u16), the name (UTF-8), length of the
payload (u64), its SHA-256, the payload. Integers are little-endian.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import IO

from ..errors import BlobError

__all__ = ["VERSION", "frame_blob", "read_blob_device", "unframe_blob"]

MAGIC = b"AIOINFER"
VERSION = 1
_HEAD = struct.Struct("<8sHH")
_PAYLOAD = struct.Struct("<Q32s")


def frame_blob(device: str, payload: bytes) -> bytes:
    """Put a device's payload in a frame that names the device and detects damage."""
    name = device.encode()
    digest = hashlib.sha256(payload).digest()
    head = _HEAD.pack(MAGIC, VERSION, len(name))
    return head + name + _PAYLOAD.pack(len(payload), digest) + payload


def read_blob_device(source: str | os.PathLike[str] | bytes | IO[bytes]) -> tuple[bytes, str]:
    """Read a blob whole and name the device that wrote it; raises BlobError."""
    blob = _read(source)
    device, _ = _split(blob)
    return blob, device


def unframe_blob(blob: bytes) -> bytes:
    """Return the payload; raises BlobError if the frame or the checksum is not right."""
    return _split(blob)[1]


def _split(blob: bytes) -> tuple[str, bytes]:
    if len(blob) < _HEAD.size or blob[: len(MAGIC)] != MAGIC:
        raise BlobError("these bytes are no network exported by aioinfer; export one with export()")
    _, version, name_bytes = _HEAD.unpack_from(blob)
    if version != VERSION:
        raise BlobError(
            f"the blob has version {version} and this is for {VERSION}; export it again"
        )
    start = _HEAD.size + name_bytes
    if len(blob) < start + _PAYLOAD.size:
        raise BlobError("the blob is cut off in its header; export it again")
    length, digest = _PAYLOAD.unpack_from(blob, start)
    payload = blob[start + _PAYLOAD.size :]
    if len(payload) != length or hashlib.sha256(payload).digest() != digest:
        raise BlobError("the blob is damaged: its payload does not match its checksum")
    try:
        return blob[_HEAD.size : start].decode(), payload
    except UnicodeDecodeError as error:
        raise BlobError("the blob is damaged: its device name is not text") from error


def _read(source: str | os.PathLike[str] | bytes | IO[bytes]) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        if isinstance(source, str | os.PathLike):
            with open(source, "rb") as file:
                return file.read()
        return source.read()
    except OSError as error:
        raise BlobError(f"cannot read the blob {source!r}: {error}") from error
