"""What only a file, or onnx, says of lengths: symbols are names, and numbers are not believed."""

from __future__ import annotations

from ..graph import TensorType, ValueType

__all__ = ["with_declared_symbols", "with_open_lengths"]


def with_open_lengths(known: ValueType | None) -> ValueType | None:
    """Leave the element type and the rank, and open every length."""
    if isinstance(known, TensorType):
        return TensorType(known.dtype, known.shape and (None,) * len(known.shape))
    if known is None or known.element is None:
        return known
    element = with_open_lengths(known.element)
    return known.with_element(element)


def with_declared_symbols(found: ValueType | None, declared: ValueType | None) -> ValueType | None:
    """Return an output's type with open lengths named as in the file, not as by inference."""
    if not isinstance(found, TensorType) or not isinstance(declared, TensorType):
        return found
    if found.shape is None or declared.shape is None or len(found.shape) != len(declared.shape):
        return found
    pairs = zip(found.shape, declared.shape, strict=True)
    return TensorType(
        found.dtype,
        tuple(
            name if isinstance(name, str) and not isinstance(dim, int) else dim
            for dim, name in pairs
        ),
    )
