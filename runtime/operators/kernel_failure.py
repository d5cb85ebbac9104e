"""The error that a failed kernel becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import AioInferError, DeviceError, TensorError
from ..graph import shape_text

__all__ = ["explain", "value_text"]


def explain(error: Exception, name: str, op: str, inputs: Sequence[Any]) -> AioInferError:
    """Return an error with node and inputs: a DeviceError if memory ran out, else a TensorError."""
    where = f"{op} (node {name!r}) on ({', '.join(value_text(value) for value in inputs)})"
    if isinstance(error, MemoryError):
        return DeviceError(
            f"{where} ran out of memory: {error}; use smaller inputs or fewer requests at a time",
            resource="memory",
            node=name,
            op=op,
        )
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(cause) or "no reason given"
    text = f"{where} failed with {type(cause).__name__}: {text}; check its inputs"
    return TensorError(text, node=name, op=op)


def value_text(value: Any) -> str:
    """Write type and shape of a value: ``float32[2,3]``, ``seq of 2 int64[4]``, ``none``."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"seq of {len(value)}" + (f" {value_text(value[0])}" if value else "")
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{shape_text(value.shape)}"
    return type(value).__name__
