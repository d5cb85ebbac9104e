"""External data: files beside the model, read or mapped, and never trusted."""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path, PureWindowsPath

import numpy as np
import onnx

from ....errors import ModelError
from ....executors import is_shortage
from ...graph.mapped_file import MappedFile, may_map
from ...graph.slabs import Slabs
from ..wire.file_structure import LARGE_BYTES, read_range

__all__ = ["ExternalFiles"]


MOST_OVERLAP = 4
"""How many times what a data file holds all tensors in it may take together."""


class ExternalFiles:
    """The data files in a model's folder, each opened at most once.

    With ``is_mapped`` large tensors stay in files that ``may_map`` allows. Closed by ``close``.
    """

    def __init__(self, folder: Path | None, *, is_mapped: bool = False) -> None:
        self._folder, self._may_map = folder, is_mapped
        self._files: dict[Path, tuple[FileIO, int, MappedFile | None]] = {}
        self._slabs = Slabs()
        self._given: dict[tuple[Path, int, int], np.ndarray] = {}
        self._given_bytes: dict[Path, int] = {}
        self.has_mapped = False
        """True once it has given a tensor that stays in its file."""

    def close(self) -> None:
        """Close the files; what was given stays good."""
        for file, _, _ in self._files.values():
            file.close()
        self._files.clear()
        self._given.clear()

    def stored_bytes(self, tensor: onnx.TensorProto, needed_bytes: int) -> np.ndarray:
        """Return the bytes of a tensor as a uint8 vector; tensors of one place share it.

        Raises ModelError if there is no folder, if the location leads out of it, if offset and
        length do not name exactly the needed bytes inside the file, or if places overlap so that
        they come to several times what the file holds.
        """
        place = f"tensor {tensor.name!r}"
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = self._resolve(entries.get("location", ""), place)
        file, size, mapped = self._open(path, entries.get("location", ""), place)
        offset = _number(entries.get("offset"), 0, "offset", place)
        length = _number(entries.get("length"), needed_bytes, "length", place)
        if length != needed_bytes:
            raise ModelError(
                f"{place} needs {needed_bytes} bytes, but its external data says length {length}"
            )
        if offset + length > size:
            raise ModelError(
                f"{place} lies at {offset} to {offset + length} of {entries['location']!r}, which "
                f"has {size} bytes: the data file is truncated or not the model's own"
            )
        if mapped is not None and length >= LARGE_BYTES:
            self.has_mapped = True
            return mapped.part(offset, offset + length)
        known = self._given.get((path, offset, length))
        if known is not None:
            return known
        self._given_bytes[path] = given_bytes = self._given_bytes.get(path, 0) + length
        if given_bytes > MOST_OVERLAP * size:
            raise ModelError(
                f"{place} and those before it take {given_bytes} bytes of "
                f"{entries['location']!r}, which has {size}: they overlap in more than "
                f"{MOST_OVERLAP} layers; save the model with its weights apart from each other"
            )
        content = self._slabs.empty(length)
        try:
            read_range(file, content.data, offset)
        except OSError as error:
            raise _unreadable(place, entries["location"], error) from error
        self._given[path, offset, length] = content
        return content

    def _open(self, path: Path, location: str, place: str) -> tuple[FileIO, int, MappedFile | None]:
        if path not in self._files:
            try:
                file = FileIO(path)
                size = os.fstat(file.fileno()).st_size
                is_mapped = self._may_map and size >= LARGE_BYTES and may_map(file.fileno())
                self._files[path] = file, size, MappedFile.of(file) if is_mapped else None
            except OSError as error:
                if is_shortage(error):
                    raise
                raise _unreadable(place, location, error) from error
        return self._files[path]

    def _resolve(self, location: str, place: str) -> Path:
        if self._folder is None:
            raise ModelError(
                f"{place} has its data in another file ({location!r}), and a model that is not "
                f"read from a path has no folder to look in; give the path of the file, or load it "
                f"with onnx.load(path), which takes the data in, and give that ModelProto"
            )
        parts = PureWindowsPath(location).parts  # both kinds of slashes
        is_absolute = os.path.isabs(location) or PureWindowsPath(location).anchor
        if not parts or "\0" in location or is_absolute or ".." in parts:
            raise ModelError(f"{place} has its data in {location!r}, not inside the model's folder")
        folder = self._folder.resolve()
        path = (folder / location).resolve()
        if not path.is_relative_to(folder):
            raise ModelError(
                f"{place} has its data in {location!r}, a link that leads out of the model's folder"
            )
        if not path.is_file():
            raise ModelError(f"{place} has its data in {location!r}, which is not there or no file")
        return path


def _unreadable(place: str, location: str, error: OSError) -> ModelError:
    return ModelError(
        f"{place} has its data in {location!r}, which cannot be read: {error.strerror or error}"
    )


def _number(text: str | None, default: int, what: str, place: str) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise ModelError(f"{place} has external data with {what} {text!r}, which is not a number")
    return int(text)
