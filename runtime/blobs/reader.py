"""Reading blobs: frames by name, mapped where the file allows it, checked before they count."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ...errors import BlobError, ModelError
from ..graph.mapped_file import MappedFile, may_map
from ..graph.slabs import Slabs
from .checksums import checksum, file_checksum
from .layout import (
    ALIGN_BYTES,
    HEADER_BYTES,
    Frame,
    aligned,
    decode_json,
    read_directory,
    read_header,
)

__all__ = ["Blob", "BlobSource"]

Array = np.ndarray[Any, Any]
BlobSource = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes]


class _Opened(NamedTuple):
    """What all parts of a blob share."""

    memory: Array
    frames: dict[str, Frame]
    file: MappedFile | None
    damaged: Callable[[BlobError], BlobError] | None


class Blob:
    """The frames of an exported network, by name.

    Header, directory and JSON are checked as they are read. Large frames are mapped, so they cost
    nothing until they are used, and are checked by ``check_frames``. Thread-safe.
    """

    def __init__(self, opened: _Opened, prefix: str = "") -> None:
        self._opened, self._prefix = opened, prefix

    @classmethod
    def open(
        cls,
        source: BlobSource,
        *,
        is_mapped: bool = True,
        damaged: Callable[[BlobError], BlobError] | None = None,
    ) -> Blob:
        """Open a path, bytes, or a binary file, which is read to its end and left open.

        A path is mapped unless ``is_mapped`` is false or others may write to the file.
        ``damaged`` is called, on any thread, with what ``check_frames`` finds, and makes the error
        that is raised. Raises BlobError for what cannot be read, is damaged, or is no blob.
        """
        memory, file = _content(source, is_mapped)
        header = read_header(memory[:HEADER_BYTES].tobytes(), memory.nbytes)
        directory = memory[header.directory_offset :].tobytes()
        return cls(_Opened(memory, read_directory(directory, header), file, damaged))

    def under(self, name: str) -> Blob:
        """Return the frames whose names begin with ``name/``, by the rest of their names."""
        return Blob(self._opened, f"{self._prefix}{name}/")

    def copied(self) -> Blob:
        """Return the same frames in memory of their own; raises BlobError if one is damaged."""
        frames: dict[str, Frame] = {}
        end = 0
        for frame in map(self._frame, self.names()):
            self._check(frame, self._bytes(frame))
            frames[frame.name] = frame._replace(offset=aligned(end))
            end = aligned(end) + frame.size_bytes
        memory = Slabs().empty(end)
        for name, frame in frames.items():
            memory[frame.offset : frame.offset + frame.size_bytes] = self._bytes(
                self._opened.frames[name]
            )
        memory.flags.writeable = False
        return Blob(_Opened(memory, frames, None, self._opened.damaged), self._prefix)

    @property
    def is_mapped(self) -> bool:
        """True if its frames are read as they are used."""
        return self._opened.file is not None

    def names(self) -> list[str]:
        """List the frames, in the order of the file."""
        start = len(self._prefix)
        return [name[start:] for name in self._opened.frames if name.startswith(self._prefix)]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._prefix + name in self._opened.frames

    def json(self, name: str) -> Any:
        """Return the content of a frame of JSON; raises BlobError if it is damaged."""
        frame = self._frame(name)
        content = self._bytes(frame)
        self._check(frame, content)
        return decode_json(content.tobytes(), f"frame {frame.name!r}")

    def memory(self, name: str) -> np.ndarray[Any, Any]:
        """Return a frame as a read-only uint8 vector at a multiple of 64; see ``check_frames``."""
        return self._bytes(self._frame(name))

    def refuse_if_changed(self) -> None:
        """Raise BlobError if its file was written to since it was mapped; asks the system once.

        A page of a file that was cut short cannot be looked at: that ends the process.
        """
        if self._opened.file is None:
            return
        try:
            self._opened.file.check()
        except ModelError as error:
            changed = _changed(error)
            raise (self._opened.damaged or _as_it_is)(changed) from error

    def check_frames(self, but: str | None = None, *, only: Collection[str] | None = None) -> None:
        """Compare the frames with their checksums; raises BlobError. Blocks for large ones.

        Those under the name ``but`` are left out, and all but ``only``, if they are named.

        A mapped file is read past the mapping, so that none of its pages becomes this process's.
        """
        try:
            names = self.names() if only is None else only
            self._check_frames(
                [name for name in names if but is None or not name.startswith(f"{but}/")]
            )
        except BlobError as error:
            if self._opened.damaged is None:
                raise
            raise self._opened.damaged(error) from error

    def _check_frames(self, names: Iterable[str]) -> None:
        for frame in map(self._frame, names):
            if self._opened.file is None:
                self._check(frame, self._bytes(frame))
                continue
            look = partial(file_checksum, start=frame.offset, size_bytes=frame.size_bytes)
            try:
                found = self._opened.file.looked_at(look)
            except ModelError as error:
                raise _changed(error) from error
            if found != frame.checksum:
                raise _mismatch(frame)

    def _frame(self, name: str) -> Frame:
        frame = self._opened.frames.get(self._prefix + name)
        if frame is None:
            raise BlobError(
                f"the blob is damaged: it has no frame {self._prefix + name!r}; export it again"
            )
        return frame

    def _bytes(self, frame: Frame) -> Array:
        return self._opened.memory[frame.offset : frame.offset + frame.size_bytes]

    @staticmethod
    def _check(frame: Frame, content: Array) -> None:
        if checksum(content) != frame.checksum:
            raise _mismatch(frame)


def _content(source: BlobSource, is_mapped: bool) -> tuple[Array, MappedFile | None]:
    if isinstance(source, bytes | bytearray | memoryview):
        return _in_memory(np.frombuffer(source, np.uint8)), None
    try:
        if not isinstance(source, str | os.PathLike):
            content = source.read()
            if not isinstance(content, bytes):
                raise BlobError(
                    "the blob reads as text; open the file in binary mode: open(path, 'rb')"
                )
            return _in_memory(np.frombuffer(content, np.uint8)), None
        with Path(source).open("rb") as opened:
            size_bytes = os.fstat(opened.fileno()).st_size
            if is_mapped and size_bytes and may_map(opened.fileno()):
                file = MappedFile.of(opened)
                return file.part(0, len(file)), file
            memory = Slabs().empty(size_bytes)
            count = opened.readinto(memory.data)
            memory.flags.writeable = False
            return memory[:count], None
    except BlobError:
        raise
    except Exception as error:  # a file object, or a path with odd characters, may raise anything
        raise BlobError(f"cannot read the blob {source!r}: {error}") from error


def _in_memory(content: Array) -> Array:
    """Return the bytes at a multiple of 64, read-only, in memory of their own."""
    copy = Slabs().empty(content.nbytes)
    copy[:] = content
    copy.flags.writeable = False
    assert not copy.nbytes or copy.ctypes.data % ALIGN_BYTES == 0
    return copy


def _mismatch(frame: Frame) -> BlobError:
    return BlobError(
        f"the blob is damaged: frame {frame.name!r} does not match its checksum; export it again"
    )


def _as_it_is(error: BlobError) -> BlobError:
    return error


def _changed(error: ModelError) -> BlobError:
    return BlobError(f"the blob was written to while it is in use: {error}")
