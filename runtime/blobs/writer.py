"""Writing blobs: frames are collected, then written one after the other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...errors import BlobError
from .checksums import checksum
from .layout import (
    HEADER_BYTES,
    Frame,
    Header,
    aligned,
    directory_text,
    header_bytes,
)

__all__ = ["BlobWriter", "write_export", "write_file"]


class BlobWriter:
    """Collects the frames of a blob, each under a name of its own; not thread-safe.

    Arrays are held, not copied, and must not change until ``chunks`` has been walked.
    """

    def __init__(self) -> None:
        self._contents: dict[str, bytes | memoryview] = {}
        self._prefix = ""

    def under(self, name: str) -> BlobWriter:
        """Return a writer into the same blob, whose names begin with ``name/``."""
        inner = BlobWriter()
        inner._contents, inner._prefix = self._contents, f"{self._prefix}{name}/"
        return inner

    def add_json(self, name: str, content: Any) -> None:
        """Add what JSON can hold; numbers must be finite."""
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        self._add(name, text.encode("utf-8", "surrogatepass"))

    def add_bytes(self, name: str, content: bytes | np.ndarray[Any, Any]) -> None:
        """Add bytes, or the memory of a C-contiguous array."""
        if isinstance(content, np.ndarray):
            self._add(name, content.reshape(-1).view(np.uint8).data)
        else:
            self._add(name, content)

    def _add(self, name: str, content: bytes | memoryview) -> None:
        if self._prefix + name in self._contents:
            raise BlobError(f"a blob has two frames called {self._prefix + name!r}")
        self._contents[self._prefix + name] = content

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the blob, in order."""
        frames, end = [], HEADER_BYTES
        for name, content in self._contents.items():
            frames.append(Frame(name, aligned(end), len(content), checksum(content)))
            end = aligned(end) + len(content)
        text = directory_text(frames)
        start = aligned(end)
        yield header_bytes(Header(start + len(text), start, len(text), checksum(text)))
        end = HEADER_BYTES
        for frame, content in zip(frames, self._contents.values(), strict=True):
            yield bytes(frame.offset - end)
            yield content
            end = frame.offset + frame.size_bytes
        yield bytes(start - end)
        yield text


def write_export(path: str | os.PathLike[str], chunks: Iterator[bytes | memoryview]) -> None:
    """Write to what a user's path names, with the rights that the process's umask leaves.

    A link stays, and the file behind it is replaced; a pipe or a device is written to as it is.
    Raises BlobError.
    """
    try:
        place = Path(os.path.realpath(os.fspath(path)))
        if place.exists() and not place.is_file():
            with place.open("wb") as file:
                write_to(file, chunks)
            return
    except (OSError, ValueError) as error:
        raise BlobError(f"cannot write the blob {str(path)!r}: {error}") from error
    write_file(place, chunks, mode=0o666)


def write_file(place: Path, chunks: Iterator[bytes | memoryview], *, mode: int = 0o600) -> None:
    """Write a file whole or not at all: beside its place, to the disk, then renamed.

    A file that was there is replaced; open readers keep the old one. Raises BlobError.
    """
    name = place.parent / f".{os.urandom(8).hex()}{place.suffix[:16]}"
    try:
        try:
            with open(name, "xb", opener=lambda made, flags: os.open(made, flags, mode)) as file:
                write_to(file, chunks)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, place)
        except BaseException:
            with suppress(OSError, ValueError):
                name.unlink()
            raise
    except (OSError, ValueError) as error:
        raise BlobError(f"cannot write the blob {str(place)!r}: {error}") from error


def write_to(file: IO[bytes], chunks: Iterator[bytes | memoryview]) -> None:
    """Write to an open binary file, all of each chunk."""
    for chunk in chunks:
        left = memoryview(chunk)
        while len(left):
            count = file.write(left)
            left = left[len(left) if count is None else count :]
