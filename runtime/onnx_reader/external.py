"""External data: files beside the model, mapped into memory and never trusted."""

from __future__ import annotations

import os
from pathlib import Path, PureWindowsPath

import numpy as np
import onnx

from ...errors import ModelError
from ...executors import is_shortage

__all__ = ["ExternalFiles"]


class ExternalFiles:
    """The data files in a model's folder, each mapped at most once, read-only.

    The arrays keep the mapping alive. A file that is cut short while it is mapped takes the process
    down, as with any mapping: replace files, do not truncate them.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._mapped: dict[Path, np.ndarray] = {}

    def stored_bytes(self, tensor: onnx.TensorProto, needed_bytes: int) -> np.ndarray:
        """Find the bytes of a tensor, as a uint8 vector that is not copied.

        Raises ModelError if there is no folder, if the location leads out of it, or if offset and
        length do not name exactly the needed bytes inside the file.
        """
        place = f"tensor {tensor.name!r}"
        entries = {entry.key: entry.value for entry in tensor.external_data}
        content = self._map(entries.get("location", ""), place)
        offset = _number(entries.get("offset"), 0, "offset", place)
        length = _number(entries.get("length"), needed_bytes, "length", place)
        if length != needed_bytes:
            raise ModelError(
                f"{place} needs {needed_bytes} bytes, but its external data says length {length}"
            )
        if offset + length > content.size:
            raise ModelError(
                f"{place} lies at {offset} to {offset + length} of {entries['location']!r}, which "
                f"has {content.size} bytes: the data file is truncated or not the model's own"
            )
        return content[offset : offset + length]

    def _map(self, location: str, place: str) -> np.ndarray:
        path = self._resolve(location, place)
        if path not in self._mapped:
            try:
                is_empty = path.stat().st_size == 0  # which cannot be mapped
                mapped = np.empty(0, np.uint8) if is_empty else np.memmap(path, np.uint8, mode="r")
            except OSError as error:
                if is_shortage(error):
                    raise
                raise ModelError(
                    f"{place} has its data in {location!r}, which cannot be read: "
                    f"{error.strerror or error}"
                ) from error
            self._mapped[path] = mapped.view(np.ndarray)
        return self._mapped[path]

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


def _number(text: str | None, default: int, what: str, place: str) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise ModelError(f"{place} has external data with {what} {text!r}, which is not a number")
    return int(text)
