"""A type that inference has found, and what the file promises beyond it."""

from __future__ import annotations

from ..graph import Dim, TensorType, ValueType

__all__ = ["promise"]


def promise(found: ValueType | None, known: ValueType | None) -> ValueType | None:
    """Fill in what inference leaves open; the file's symbols go before inferred ones."""
    if found is None or known is None:
        return found or known
    if isinstance(found, TensorType) and isinstance(known, TensorType):
        if found.dtype is not known.dtype or known.shape is None:
            return found
        if found.shape is None:
            return known
        if len(found.shape) != len(known.shape):
            return found
        pairs = zip(found.shape, known.shape, strict=True)
        return TensorType(found.dtype, tuple(_promised_dim(*pair) for pair in pairs))
    if isinstance(found, TensorType) or isinstance(known, TensorType):
        return found
    if type(found) is not type(known):
        return found
    return found.with_element(promise(found.element, known.element))


def _promised_dim(found: Dim, known: Dim) -> Dim:
    if found is None or (isinstance(found, str) and isinstance(known, str)):
        return known
    return found
