"""Files that are given for ONNX models and are something else: what they are, and the way out.

Looked at only after reading has failed, so what looks like one of these and is a model is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["foreign_kind"]

LOOK_BYTES = 4096
"""How much of a file is looked at for words."""

_ZIP = b"PK\x03\x04"
_HTML = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.I | re.S)
_TEXT_BYTES = frozenset({*range(0x20, 0x7F), *b"\t\n\r\f", *range(0x80, 0x100)})


class _Kind(NamedTuple):
    """A kind of file: how its content is recognised, and the message about it."""

    is_it: Callable[[bytes], bool]
    text: str


def _at(start: int, *marks: bytes) -> Callable[[bytes], bool]:
    return lambda content: content[start:].startswith(marks) if start else content.startswith(marks)


def _has(mark: bytes, *words: bytes) -> Callable[[bytes], bool]:
    """True for what begins with a mark and has one of the words near its start or its end."""

    def is_it(content: bytes) -> bool:
        ends = content[:LOOK_BYTES] + content[-LOOK_BYTES:]
        return content.startswith(mark) and any(word in ends for word in words)

    return is_it


def _is_safetensors(content: bytes) -> bool:
    length = int.from_bytes(content[:8], "little")
    return content[8:9] == b"{" and 2 <= length <= len(content) - 8


def _is_text(content: bytes) -> bool:
    start = content[:LOOK_BYTES]
    if not _TEXT_BYTES.issuperset(start):
        return False
    try:
        start.decode()
    except UnicodeDecodeError as error:
        return error.end == len(start) == LOOK_BYTES  # cut within a letter
    return True


_EXPORT = "export it with torch.onnx.export(model, inputs, 'model.onnx')"
_UNPACK = "unpack it and give the .onnx file inside it"

_KINDS = (
    _Kind(lambda content: not content, "is empty; copy or download it again"),
    _Kind(
        _at(0, b"AIOINFER"),
        "is a network that aioinfer exported; load it with core.import_network",
    ),
    _Kind(
        _at(0, b"version https://git-lfs.github.com/"),
        "is a Git LFS pointer, not the model itself; fetch the model with 'git lfs pull'",
    ),
    _Kind(
        lambda content: b"/annex/objects/" in content[:LOOK_BYTES] and len(content) < LOOK_BYTES,
        "is a git-annex pointer, not the model itself; fetch the model with 'git annex get'",
    ),
    _Kind(
        lambda content: _HTML.match(content[:LOOK_BYTES]) is not None,
        "is an HTML page, as servers send one for an error or a login; download the file itself",
    ),
    _Kind(
        lambda content: content.lstrip()[:5] in (b"<?xml", b"<net ") and b"<net " in content[:9999],
        "is a model in OpenVINO's format (IR); give the ONNX model that it was made from",
    ),
    _Kind(
        _has(_ZIP, b"/data.pkl", b"/constants.pkl", b"/.format_version", b"archive/version"),
        f"is a file of PyTorch (torch.save or TorchScript), not ONNX; {_EXPORT}",
    ),
    _Kind(
        _at(0, b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        f"is a Python pickle, as torch.save and joblib write them, not ONNX; load it where it came "
        f"from, and {_EXPORT}, or skl2onnx for scikit-learn",
    ),
    _Kind(
        _has(_ZIP, b"model.weights.h5"),
        "is a model of Keras, not ONNX; export it with model.export('model.onnx', format='onnx')",
    ),
    _Kind(_at(0, _ZIP, b"PK\x05\x06"), f"is a zip archive; {_UNPACK}"),
    _Kind(
        _at(0, b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf\x27\x1c"),
        f"is compressed (gzip, bzip2, xz, zstd or 7z); {_UNPACK}",
    ),
    _Kind(_at(257, b"ustar"), f"is a tar archive; {_UNPACK}"),
    _Kind(
        _is_safetensors,
        f"is a safetensors file, which has weights and no graph; load them into their model, and "
        f"{_EXPORT}",
    ),
    _Kind(
        _at(0, b"GGUF"),
        "is a GGUF file, of llama.cpp; get the model in ONNX, for example with optimum-cli",
    ),
    _Kind(
        _at(4, b"TFL3"),
        "is a model of TensorFlow Lite; convert it with 'python -m tf2onnx.convert --tflite'",
    ),
    _Kind(
        _at(4, b"ORTM"),
        "is a model in onnxruntime's own format (.ort); give the .onnx file that it was made from",
    ),
    _Kind(
        _at(0, b"\x89HDF"),
        "is an HDF5 file, as Keras writes them; export the model to ONNX with tf2onnx or Keras 3",
    ),
    _Kind(_at(0, b"\x93NUMPY"), "is a numpy array; arrays are inputs: give the model's .onnx file"),
    _Kind(
        _at(0, b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF"),
        "is an image, or sound; those are inputs: give the model's .onnx file",
    ),
    _Kind(
        _at(0, b"\x7fELF", b"MZ"),
        "is a program or library, not ONNX; give the model's .onnx file",
    ),
    _Kind(
        _is_text,
        "is a text file; give the binary .onnx file, or parse ONNX's text with onnx.parser first",
    ),
)
"""In order: the first that fits is named."""


def foreign_kind(content: bytes) -> str | None:
    """Return what is wrong with content that is no ONNX model, without its name; None: unknown."""
    return next((kind.text for kind in _KINDS if kind.is_it(content)), None)
