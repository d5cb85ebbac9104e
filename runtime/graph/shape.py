"""Shapes with symbols, and the types of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from .dtype import DType

__all__ = [
    "Dim",
    "OptionalType",
    "SequenceType",
    "Shape",
    "TensorType",
    "ValueType",
    "is_static",
    "shape_text",
    "size_bytes",
]

Dim = int | str | None
"""A length, a symbol that stands for the same length everywhere, or None: not known."""

Shape = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor; ``shape`` None says that not even the rank is known."""

    dtype: DType
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"{self.dtype.label}{shape_text(self.shape)}"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type; element None: unknown."""

    element: ValueType | None

    def __str__(self) -> str:
        return f"seq({self.element or '?'})"

    def with_element(self, element: ValueType | None) -> SequenceType:
        """Return a list of values of another type."""
        return SequenceType(element)


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value or None."""

    element: ValueType | None

    def __str__(self) -> str:
        return f"optional({self.element or '?'})"

    def with_element(self, element: ValueType | None) -> OptionalType:
        """Return a value of another type, or None."""
        return OptionalType(element)


@dataclass(frozen=True, slots=True)
class MapType:
    """A dict of values of one type; its keys are integers or strings, as ``key`` says."""

    key: DType
    element: ValueType | None

    def __str__(self) -> str:
        return f"map({self.key.label},{self.element or '?'})"

    def with_element(self, element: ValueType | None) -> MapType:
        """Return a dict of values of another type."""
        return MapType(self.key, element)


ValueType = TensorType | SequenceType | OptionalType | MapType


def is_static(shape: Sequence[Dim] | None) -> TypeGuard[tuple[int, ...]]:
    """True if the rank and every length are known."""
    if shape is None:
        return False
    for dim in shape:  # noqa: SIM110 (asked of every value of a graph, many times)
        if not isinstance(dim, int):
            return False
    return True


def shape_text(shape: Sequence[Dim] | None) -> str:
    """Write a shape as users read it: ``[batch,3,?]``; ``[...]`` where the rank is unknown."""
    if shape is None:
        return "[...]"
    return "[" + ",".join(["?" if dim is None else str(dim) for dim in shape]) + "]"


def size_bytes(value_type: ValueType | None) -> int | None:
    """Bytes of a tensor of this type in memory; None where the type does not say."""
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return None
    count = 1
    for dim in value_type.shape:
        if not isinstance(dim, int):
            return None
        count *= dim
    return count * value_type.dtype.item_bytes
