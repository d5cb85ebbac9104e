"""Blobs: exported networks, framed and checksummed; no pickle.

Layout: magic, version (u16), length of the device name (u16), the name (UTF-8), length of the
payload (u64), SHA-256 of all that stands before it and of the payload, the payload. Integers are
little-endian.
"""

from __future__ import annotations

import hashlib
import os
import struct
from typing import IO

from ...errors import BlobError

__all__ = ["VERSION", "frame_blob", "read_blob_device", "unframe_blob"]

MAGIC = b"AIOINFER"
VERSION = 1
_HEAD = struct.Struct("<8sHH")
_LENGTH = struct.Struct("<Q")


def frame_blob(device: str, payload: bytes) -> bytes:
    """Put a device's payload in a frame that names the device and detects damage."""
    name = device.encode()
    head = _HEAD.pack(MAGIC, VERSION, len(name)) + name + _LENGTH.pack(len(payload))
    return head + _digest(head, payload) + payload


def read_blob_device(source: str | os.PathLike[str] | bytes | IO[bytes]) -> tuple[bytes, str]:
    """Read a blob whole and name the device that wrote it; raises BlobError.

    source: a path, bytes, or a file opened in binary mode, which is read to its end and left open.
    """
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
            f"the blob has version {version} and this is for {VERSION}; export it again",
            version=version,
            wanted_version=VERSION,
        )
    start = _HEAD.size + name_bytes
    head, rest = blob[: start + _LENGTH.size], blob[start + _LENGTH.size :]
    size = len(_digest(b"", b""))
    if len(rest) < size:
        raise BlobError("the blob is cut off in its header; export it again")
    digest, payload = rest[:size], rest[size:]
    (length,) = _LENGTH.unpack_from(head, start)
    if len(payload) < length:
        raise BlobError(
            f"the blob is cut off: {len(payload)} of {length} bytes are there; export it again"
        )
    if len(payload) != length or _digest(head, payload) != digest:
        raise BlobError("the blob is damaged: it does not match its checksum; export it again")
    try:
        return blob[_HEAD.size : start].decode(), payload
    except UnicodeDecodeError as error:
        raise BlobError("the blob is damaged: its device name is not text") from error


def _digest(head: bytes, payload: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(payload)
    return digest.digest()


def _read(source: str | os.PathLike[str] | bytes | IO[bytes]) -> bytes:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    try:
        if isinstance(source, str | os.PathLike):
            with open(source, "rb") as file:
                return file.read()
        content = source.read()
    except Exception as error:  # a file object, or a path with odd characters, may raise anything
        raise BlobError(f"cannot read the blob {source!r}: {error}") from error
    if not isinstance(content, bytes):
        raise BlobError("the blob reads as text; open the file in binary mode: open(path, 'rb')")
    return content
