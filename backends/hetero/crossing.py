"""What crosses a cut, held against what the part that takes it was compiled for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import TensorError
from ...runtime.graph import (
    DType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
    is_static,
    shape_text,
)

__all__ = ["Crossing"]


@dataclass(frozen=True)
class Crossing:
    """A value on its way from one subgraph to another; ``promised`` None: nothing is known of it.

    ``source`` is the index of the subgraph that makes it. ``maker`` and ``taker`` name both ends
    for errors.
    """

    name: str
    source: int
    promised: ValueType | None
    maker: str
    taker: str
    _dtype: np.dtype[Any] | None = field(init=False)
    _shape: tuple[int, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        kind = self.promised
        dims = kind.shape if isinstance(kind, TensorType) and is_static(kind.shape) else None
        dtype = kind.dtype.numpy if isinstance(kind, TensorType) else None
        shape = None if dims is None else tuple(dim for dim in dims if isinstance(dim, int))
        object.__setattr__(self, "_dtype", dtype)
        object.__setattr__(self, "_shape", shape)

    def check(self, value: Any) -> None:
        """Raise TensorError unless the value is of the promised type and of every known length."""
        if type(value) is np.ndarray and value.dtype == self._dtype and value.shape == self._shape:
            return
        if self.promised is not None and not _is_of(self.promised, value):
            raise TensorError(
                f"value {self.name!r} comes from {self.maker} as {_text(value)}, and {self.taker} "
                f"was compiled for {self.promised}; correct what the model declares, or the type "
                f"rule of a custom operator, or run both parts on one device",
                tensor=self.name,
            )


def _is_of(kind: ValueType | None, value: Any) -> bool:
    if isinstance(kind, SequenceType):
        return isinstance(value, list) and all(_is_element(kind.element, item) for item in value)
    if isinstance(kind, OptionalType):
        return value is None or _is_of(kind.element, value)
    if isinstance(kind, MapType):
        return isinstance(value, dict)
    if kind is None:
        return True
    if not _is_element(kind, value):
        return False
    return kind.shape is None or (
        len(value.shape) == len(kind.shape)
        and all(
            not isinstance(dim, int) or dim == length
            for dim, length in zip(kind.shape, value.shape, strict=True)
        )
    )


def _is_element(kind: ValueType | None, value: Any) -> bool:
    """Return whether a value could be in a sequence: there tensors have shapes of their own."""
    if not isinstance(kind, TensorType):
        return _is_of(kind, value)
    if not hasattr(value, "shape"):
        return False
    dtype = getattr(value, "dtype", None)
    is_text = kind.dtype is DType.STRING and isinstance(dtype, np.dtype) and dtype.kind in "OU"
    return is_text or dtype == kind.dtype.numpy


def _text(value: Any) -> str:
    if isinstance(value, list):
        kinds = dict.fromkeys(map(_text, value))
        return f"a list with {', '.join(kinds)}" if kinds else "an empty list"
    shape = getattr(value, "shape", None)
    if shape is None:
        return "None" if value is None else f"a {type(value).__name__}"
    return f"{value.dtype}{shape_text(shape)}"
