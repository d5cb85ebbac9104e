"""What the caller gave, a path, bytes, a file or a proto, as a ModelProto of our own."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ...errors import ModelError
from ...executors import is_shortage
from .foreign_files import foreign_kind
from .wire.limits import LimitError, check_bytes
from .wire.skimming import SkimmedFile, skim

__all__ = ["ModelSource", "Source", "load_source", "source_label", "source_name"]

ModelSource = str | os.PathLike[str] | bytes | BinaryIO | onnx.ModelProto


@dataclass(frozen=True)
class Source:
    """A parsed proto, which the reader may change, and the file it came from if there is one.

    ``skimmed`` holds the large tensors that the proto only names.
    """

    proto: onnx.ModelProto
    path: Path | None
    skimmed: SkimmedFile | None = None


def source_label(source: object) -> str:
    """Return what error messages call the model that the caller gave."""
    if isinstance(source, str | os.PathLike):
        return f"model {source_name(source)!r}"
    if isinstance(source, bytes | bytearray | memoryview):
        return f"model given as {len(source)} bytes"
    if isinstance(source, onnx.ModelProto):
        return "model given as a ModelProto"
    name = source_name(source)
    return f"model from file object {name!r}" if name else "model"


def source_name(source: object) -> str:
    """Return the file that a model came from; "" for one of the caller's memory."""
    if isinstance(source, str | os.PathLike):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else ""


def load_source(source: ModelSource) -> Source:
    """Parse what was given; raises ModelError if it is missing, unreadable or not a protobuf.

    LimitError for what is too large to parse. External data is not looked for. A ModelProto is
    copied; a file object is read to its end and left open.
    """
    if isinstance(source, onnx.ModelProto):
        copied = onnx.ModelProto()
        copied.CopyFrom(source)
        _refuse_without_graph(copied, None)
        return _checked(copied, None)
    if isinstance(source, bytes | bytearray | memoryview):
        return _checked(_parse(bytes(source)), None)
    if isinstance(source, str | os.PathLike):
        return _load_file(Path(os.fsdecode(source)))
    read = getattr(source, "read", None)
    if read is None:
        raise ModelError(
            f"is a {type(source).__name__}; give a path, bytes, a binary file or a ModelProto"
        )
    content = read()
    if not isinstance(content, bytes):
        raise ModelError("reads as text; open the file in binary mode: open(path, 'rb')")
    return _checked(_parse(content), None)


def _load_file(path: Path) -> Source:
    try:
        mode = _mode(path)
        if stat.S_ISDIR(mode):
            raise ModelError("is a directory; give the .onnx file inside it")
        if not stat.S_ISREG(mode):
            raise ModelError("is not a regular file")
        skimmed = skim(path)
        content = path.read_bytes() if skimmed is None else skimmed.image
    except FileNotFoundError as error:
        raise ModelError(f"does not exist (looked in {Path.cwd()})") from error
    except OSError as error:
        if is_shortage(error):
            raise
        raise ModelError(f"cannot be read: {error.strerror or error}") from error
    return _checked(_parse(content), path, skimmed)


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except ValueError as error:
        raise ModelError(f"cannot be read: no file has such a path ({error})") from error


def _parse(content: bytes) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        check_bytes(content)
        proto.ParseFromString(content)
    except (DecodeError, LimitError) as error:
        kind = foreign_kind(content)
        if kind is None and isinstance(error, LimitError):
            raise
        text = kind or "is not an ONNX protobuf, or is truncated or damaged"
        raise ModelError(text) from error
    _refuse_without_graph(proto, content)
    return proto


def _refuse_without_graph(proto: onnx.ModelProto, content: bytes | None) -> None:
    if not proto.HasField("graph") or proto.ir_version < 1:
        kind = None if content is None else foreign_kind(content)
        raise ModelError(
            kind
            or "has no graph or no IR version: it is not an ONNX model, or is truncated or damaged"
        )


def _checked(
    proto: onnx.ModelProto, path: Path | None, skimmed: SkimmedFile | None = None
) -> Source:
    _check_text(proto)
    # Newer IR versions only add fields, which the parser skips; onnx's C++ part refuses the number.
    proto.ir_version = min(proto.ir_version, onnx.IR_VERSION)
    del proto.training_info[:]
    return Source(proto, path, skimmed)


def _check_text(proto: onnx.ModelProto) -> None:
    """Raise ModelError for a name that is no text: protobuf gives it as bytes, or not at all."""
    waiting: list[Message] = [proto]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            items = (value,) if isinstance(value, str | bytes | Message) else value
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                waiting.extend(items)
            elif field.type == FieldDescriptor.TYPE_STRING:
                for item in items:
                    if not isinstance(item, str):
                        raise ModelError(
                            f"has a {message.DESCRIPTOR.name} whose {field.name} {item!r} is not "
                            f"UTF-8; the file is damaged"
                        )
