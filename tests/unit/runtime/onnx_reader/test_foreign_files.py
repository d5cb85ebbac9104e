"""What is given for a model and is none says what it is, and what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aioinfer.errors import ModelError
from aioinfer.runtime.onnx_reader import read_model
from unit.runtime.models import tiny_model


def zipped(**files: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def tarred(content: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        info = tarfile.TarInfo("model.onnx")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def saved(array: np.ndarray) -> bytes:
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


ONNX = tiny_model().SerializeToString()
WEIGHTS = bytes(range(256)) * 40
HEADER = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
PAGE = b"<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>"
FOREIGN = {
    "nothing": (b"", "is empty"),
    "Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 102530333\n",
        "Git LFS pointer.*git lfs pull",
    ),
    "git-annex": (b"../.git/annex/objects/a/b/SHA256E-s9--4d.onnx", "git-annex pointer"),
    "an error page": (PAGE, "HTML page.*download the file itself"),
    "a page with a comment": (b"<!-- x -->\n" + PAGE.lower(), "HTML page"),
    "OpenVINO": (
        b'<?xml version="1.0"?>\n<net name="resnet" version="11">\n<layers/></net>',
        "OpenVINO's format",
    ),
    "PyTorch": (
        zipped(**{"archive/data.pkl": b"\x80\x02}.", "archive/data/0": WEIGHTS}),
        "PyTorch",
    ),
    "TorchScript": (
        zipped(**{"m/code/x.py": b"", "m/constants.pkl": b"", "m/data/0": WEIGHTS}),
        "PyTorch.*torch.onnx.export",
    ),
    "a pickle": (b"\x80\x02}q\x00(X\x01\x00\x00\x00wq\x01K\x01u.", "Python pickle"),
    "Keras": (zipped(**{"config.json": b"{}", "model.weights.h5": WEIGHTS}), "Keras"),
    "a zip archive": (zipped(**{"model.onnx": ONNX}), "zip archive.*give the .onnx file inside"),
    "gzip": (gzip.compress(ONNX), "compressed.*unpack it"),
    "bzip2": (bz2.compress(ONNX), "compressed"),
    "xz": (lzma.compress(ONNX), "compressed"),
    "tar": (tarred(ONNX), "tar archive"),
    "safetensors": (struct.pack("<Q", len(HEADER)) + HEADER + b"1234", "safetensors"),
    "GGUF": (b"GGUF\x03\x00\x00\x00" + WEIGHTS, "llama.cpp"),
    "TensorFlow Lite": (b"\x1c\x00\x00\x00TFL3" + WEIGHTS, "TensorFlow Lite"),
    "onnxruntime": (b"\x1c\x00\x00\x00ORTM" + WEIGHTS, "onnxruntime's own format"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + WEIGHTS, "HDF5"),
    "numpy": (saved(np.ones(3)), "numpy array"),
    "an image": (b"\x89PNG\r\n\x1a\n" + WEIGHTS, "image"),
    "a library": (b"\x7fELF\x02\x01\x01" + WEIGHTS, "program or library"),
    "an exported network": (b"AIOINFER\x01\x00" + WEIGHTS, "core.import_network"),
    "JSON": (b'{"error": "access denied"}', "text file"),
    "a text longer than the look at it": (("grüße " * 2000).encode(), "text file"),
    "noise": (WEIGHTS, "not an ONNX"),
}


@pytest.mark.parametrize("how", ["path", "bytes", "file"])
@pytest.mark.parametrize(("content", "said"), FOREIGN.values(), ids=FOREIGN)
def test_a_file_of_another_kind_is_told_with_the_way_out(
    content: bytes, said: str, how: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    given = {"path": path, "bytes": content, "file": io.BytesIO(content)}[how]
    with pytest.raises(ModelError, match=said) as caught:
        read_model(given)
    assert caught.value.model == (str(path) if how == "path" else "")


def test_a_model_that_speaks_of_another_kind_of_file_is_read() -> None:
    model = tiny_model()
    model.doc_string = "<html>version https://git-lfs.github.com/"
    assert len(list(read_model(model.SerializeToString()).graph.nodes)) == 2
