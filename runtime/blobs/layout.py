"""The bytes of a blob around its frames: header and directory (docs/blob-format.md).

Pure: from bytes to where each frame lies, or to a BlobError that says what is wrong.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...errors import BlobError
from .checksums import checksum

__all__ = [
    "ALIGN_BYTES",
    "HEADER_BYTES",
    "MOST_DIRECTORY_BYTES",
    "VERSION",
    "Frame",
    "Header",
    "decode_json",
    "directory_text",
    "header_bytes",
    "is_blob",
    "read_directory",
    "read_header",
]

MAGIC = b"AIOINFER"
VERSION = 5
ALIGN_BYTES = 64
"""Of each frame, from the beginning of the file: a cache line, and the widest vector register."""
MOST_DIRECTORY_BYTES = 1 << 28

_HEADER = struct.Struct("<8sIIQQQI16xI")
"""Magic, version, zero, bytes of the file, offset, bytes and checksum of the directory; checksum of
all that before."""
HEADER_BYTES = _HEADER.size
_CHECKED = HEADER_BYTES - 4


class Frame(NamedTuple):
    """Where a frame lies in its file, and the CRC-32 of its bytes."""

    name: str
    offset: int
    size_bytes: int
    checksum: int


class Header(NamedTuple):
    """What the first bytes say: how long the file is, and where its directory lies."""

    file_bytes: int
    directory_offset: int
    directory_bytes: int
    directory_checksum: int


def aligned(offset: int) -> int:
    """Return the next place where a frame may begin."""
    return -(-offset // ALIGN_BYTES) * ALIGN_BYTES


def directory_text(frames: Sequence[Frame]) -> bytes:
    """Write the directory: JSON of [name, offset, bytes, checksum] of each frame, by offset."""
    rows = [[frame.name, frame.offset, frame.size_bytes, frame.checksum] for frame in frames]
    return json.dumps({"frames": rows}, separators=(",", ":")).encode()


def header_bytes(header: Header) -> bytes:
    """Write the header."""
    packed = _HEADER.pack(
        MAGIC,
        VERSION,
        0,
        header.file_bytes,
        header.directory_offset,
        header.directory_bytes,
        header.directory_checksum,
        0,
    )
    return packed[:_CHECKED] + struct.pack("<I", checksum(packed[:_CHECKED]))


def is_blob(head: bytes) -> bool:
    """True for the first bytes of an exported network."""
    return head[: len(MAGIC)] == MAGIC


def read_header(head: bytes, file_bytes: int) -> Header:
    """Read the header of a file of ``file_bytes``; raises BlobError for another or a cut file."""
    if not is_blob(head):
        raise BlobError("these bytes are no network exported by aioinfer; export one with export()")
    if len(head) >= len(MAGIC) + 4:
        (version,) = struct.unpack_from("<I", head, len(MAGIC))
        if version != VERSION:
            raise BlobError(
                f"the blob has format version {version} and this is for {VERSION}; export it again",
                version=version,
                wanted_version=VERSION,
            )
    if len(head) < HEADER_BYTES:
        raise BlobError("the blob is cut off in its header; export it again")
    fields = _HEADER.unpack_from(head)
    if fields[-1] != checksum(head[:_CHECKED]):
        raise _damaged("its header does not match its checksum")
    header = Header(*fields[3:7])
    if header.file_bytes > file_bytes:
        raise BlobError(
            f"the blob is cut off: {file_bytes} of {header.file_bytes} bytes are there; export it "
            f"again"
        )
    if header.file_bytes < file_bytes:
        raise _damaged(f"{file_bytes - header.file_bytes} bytes follow behind its end")
    end = header.directory_offset + header.directory_bytes
    if header.directory_offset < HEADER_BYTES or end != file_bytes:
        raise _damaged("its directory does not end where the file does")
    if header.directory_bytes > MOST_DIRECTORY_BYTES:
        raise _damaged(f"its directory has {header.directory_bytes} bytes")
    return header


def read_directory(content: bytes, header: Header) -> dict[str, Frame]:
    """Read the directory, in the order of the file; raises BlobError unless the frames fill it.

    They lie one behind the other, each at the next aligned place, up to the directory.
    """
    if checksum(content) != header.directory_checksum:
        raise _damaged("its directory does not match its checksum")
    found = decode_json(content, "its directory")
    rows = found.get("frames") if isinstance(found, Mapping) else None
    if not isinstance(rows, list):
        raise _damaged("its directory lists no frames")
    frames: dict[str, Frame] = {}
    end = HEADER_BYTES
    for row in rows:
        frame = _frame(row)
        if frame.name in frames:
            raise _damaged(f"two frames are called {frame.name!r}")
        if frame.offset != aligned(end):
            raise _damaged(
                f"frame {frame.name!r} begins at byte {frame.offset}, not at {aligned(end)}"
            )
        end = frame.offset + frame.size_bytes
        if end > header.directory_offset:
            raise _damaged(f"frame {frame.name!r} ends behind the beginning of the directory")
        frames[frame.name] = frame
    if aligned(end) != header.directory_offset:
        raise _damaged("bytes between its last frame and its directory belong to no frame")
    return frames


def _frame(row: Any) -> Frame:
    if not isinstance(row, list) or len(row) != 4 or not isinstance(row[0], str):
        raise _damaged("its directory has a row that is no frame")
    name, *numbers = row
    if any(type(number) is not int or number < 0 for number in numbers):
        raise _damaged(f"frame {name!r} has a place that is no number of bytes")
    return Frame(name, *numbers)


def decode_json(content: bytes, what: str) -> Any:
    """Parse JSON of a blob; raises BlobError that names ``what``."""
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"{what} is no JSON ({type(error).__name__})") from error


def _refuse_constant(text: str) -> Any:
    raise ValueError(text)


def _damaged(what: str) -> BlobError:
    return BlobError(f"the blob is damaged: {what}; export it again")
