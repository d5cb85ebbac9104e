"""Reading ONNX models: from a path, bytes, a file or a proto to a Model of one operator set.

Ordinary models are read without importing onnx, which takes longer to load than most of them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

from ...executors import shortage_as_error
from ...executors.late_imports import late_imports
from ..graph import Model
from .plain.plain_reader import read_plain_bytes, read_plain_file, read_plain_proto

if TYPE_CHECKING:
    from onnx import ModelProto

    from .source import ModelSource

__all__ = ["read_model"]


def read_model(source: ModelSource, *, is_mapped: bool = False) -> Model:
    """Read a model and bring it to the newest opset that onnx knows.

    source: a path, the bytes of a file, a file opened in binary mode, or a ModelProto, which is not
    changed. Model-local functions are inlined. Every node has a unique name; ``fused_from`` gives
    the nodes of the file that it stands for, and metadata such as the affinity is kept. Constant
    nodes become initializers; weights that are listed as inputs, which a caller could replace in
    ONNX, are constants, too; those that nothing reads may be left out. External data is looked for
    in the folder of the path only; the arrays of constants are read-only. With ``is_mapped``, large
    constants may be mapped from their files (``Model.is_mapped``, ``graph/mapped_file.py``).
    Blocks; any thread.

    Raises ModelError, with the cause chained, for whatever is not a valid model, DeviceError where
    memory or files that may be open do not suffice, and nothing else.
    """
    with shortage_as_error("reading the model"):
        model = None
        if isinstance(source, str | os.PathLike):
            model = read_plain_file(Path(os.fsdecode(source)), is_mapped=is_mapped)
        elif isinstance(source, bytes):
            model = read_plain_bytes(source)
        elif _is_proto(source):
            model = read_plain_proto(source)
        if model is not None:
            return model
        with late_imports:
            from .onnx_models import read_any_model

        return read_any_model(source, is_mapped=is_mapped)


def _is_proto(source: object) -> TypeGuard[ModelProto]:
    """True for a proto, whose maker has imported onnx."""
    return isinstance(source, getattr(sys.modules.get("onnx"), "ModelProto", ()))
