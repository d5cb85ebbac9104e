"""Reading an ordinary model without onnx, whose import takes longer than reading the model."""

from __future__ import annotations

import logging
import mmap
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....executors import is_shortage
from ...graph import Model
from ...graph.mapped_file import MappedFile, may_map
from ...graph.slabs import Slabs
from ...type_inference import ContradictionError
from ..wire.file_structure import LARGE_BYTES, copy_structure, read_range
from ..wire.limits import LimitError
from .plain_fields import NotPlainError
from .plain_graph import build_model, opset_versions
from .plain_proto import decode_model
from .plain_tensors import ReadRaw

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["read_plain_bytes", "read_plain_file", "read_plain_proto"]

_log = logging.getLogger("aioinfer")

Array = np.ndarray[Any, Any]


def read_plain_file(path: Path, *, is_mapped: bool = False) -> Model | None:
    """Read a model file; None if it is not plain, is damaged or is not there.

    With ``is_mapped`` large constants stay in the file (``MappedFile``). Where None is given ask
    onnx: it reads more, and says what is wrong. Blocks; any thread. Raises nothing but MemoryError
    and OSError for want of memory or files, of which onnx would need still more, and
    ContradictionError and LimitError, which onnx may not know better.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # to open a FIFO would wait for its writer
            return None
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if not size:
                return None
            mapped = MappedFile.of(file) if is_mapped and may_map(file.fileno()) else None
            label = repr(str(path))
            with _labelled(label, path):
                structure = copy_structure(file, size)
            model = _read(structure, _part_reader(file, structure, mapped), path, label)
            if model is not None:
                model.is_mapped, model.is_one_file = mapped is not None, True
            return model
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        if is_shortage(error):
            raise
        return None


def read_plain_bytes(data: bytes, label: str = "a model given as bytes") -> Model | None:
    """Read the bytes of a model file, none of which is kept; as ``read_plain_file``.

    ``label`` is what errors call the model.
    """
    slabs = Slabs()

    def read(start: int, end: int) -> Array:
        part = slabs.empty(end - start)
        part[:] = np.frombuffer(data, np.uint8, end - start, start)
        return part

    return _read(data, read, None, label)


def read_plain_proto(proto: ModelProto) -> Model | None:
    """Read what onnx has parsed, from the bytes that it would write; as ``read_plain_bytes``."""
    try:
        data = proto.SerializeToString()
    except Exception as error:  # more than protobuf writes; or text that is no UTF-8
        if is_shortage(error):
            raise
        return None
    return read_plain_bytes(data, "a model given as a ModelProto")


def _part_reader(file: FileIO, structure: mmap.mmap, mapped: MappedFile | None) -> ReadRaw:
    """Read parts of a file into memory of their own, or leave the large ones where they are."""
    slabs = Slabs()

    def read(start: int, end: int) -> Array:
        if mapped is not None and end - start >= LARGE_BYTES:
            return mapped.part(start, end)
        part = slabs.empty(end - start)
        if end - start < LARGE_BYTES:
            part[:] = np.frombuffer(structure, np.uint8, end - start, start)
            return part
        read_range(file, part.data, start)
        return part

    return read


def _read(data: bytes | mmap.mmap, read: ReadRaw, path: Path | None, label: str) -> Model | None:
    if sys.byteorder != "little":
        return None
    try:
        with _labelled(label, path):
            return build_model(decode_model(data, read, opset_versions), path)
    except (ContradictionError, LimitError):
        raise
    except NotPlainError as reason:
        _log.debug("onnx reads %s, because %s", label, reason)
    except MemoryError:
        raise
    # Of a file that has not been checked only onnx says what is wrong.
    except Exception:
        _log.debug("onnx reads %s, which we fail at", label, exc_info=True)
    return None


@contextmanager
def _labelled(label: str, path: Path | None) -> Iterator[None]:
    """Put the model's name before errors that are not for onnx to find again."""
    try:
        yield
    except (ContradictionError, LimitError) as error:
        raise error.of_model(label, "" if path is None else str(path)) from error
