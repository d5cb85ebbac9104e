"""Blobs: framed, read back, and every damage found before a device sees the payload."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from aioinfer.errors import BlobError
from aioinfer.runtime.devices.blob import VERSION, frame_blob, read_blob_device, unframe_blob

BLOB = frame_blob("TOY.1", b"payload")


@pytest.mark.parametrize("payload", [b"", b"payload", bytes(range(256)) * 100])
def test_what_is_framed_comes_back(payload: bytes) -> None:
    blob = frame_blob("TOY.1", payload)
    assert unframe_blob(blob) == payload
    assert read_blob_device(blob) == (blob, "TOY.1")


def test_a_blob_may_be_a_path_bytes_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "net.blob"
    path.write_bytes(BLOB)
    sources: list[Any] = [path, str(path), BLOB, bytearray(BLOB), memoryview(BLOB)]
    for source in [*sources, io.BytesIO(BLOB)]:
        assert read_blob_device(source) == (BLOB, "TOY.1")


def test_every_truncation_is_found() -> None:
    for length in range(len(BLOB)):
        with pytest.raises(BlobError, match=r"cut off|no network exported"):
            read_blob_device(BLOB[:length])
    with pytest.raises(BlobError, match="damaged"):
        read_blob_device(BLOB + b"x")


def test_every_flipped_bit_is_found() -> None:
    for index in range(8 * len(BLOB)):
        damaged = bytearray(BLOB)
        damaged[index // 8] ^= 1 << index % 8
        with pytest.raises(BlobError):
            read_blob_device(bytes(damaged))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "these bytes are no network exported by aioinfer"),
        (b"\x08\x0a\x12\x04onnx", "no network exported"),
        (BLOB[:8] + bytes([VERSION + 1]) + BLOB[9:], f"version {VERSION + 1} and this is for"),
        ("no/such/file.blob", "cannot read the blob 'no/such/file.blob'"),
        ("a\0b", "cannot read the blob"),
        (io.StringIO("text"), "open the file in binary mode"),
        (5, "cannot read the blob 5"),
        (None, "cannot read the blob None"),
    ],
)
def test_what_is_no_blob_is_a_blob_error(source: Any, message: str) -> None:
    with pytest.raises(BlobError, match=message):
        read_blob_device(source)
