"""What rules read of a node: its operands and its attributes, checked before they are believed."""

from __future__ import annotations

from typing import NamedTuple

from ..graph import DType, Node, Shape, TensorType

__all__ = ["Operand", "integer", "integers", "operand"]


class Operand(NamedTuple):
    """An input that is given, a tensor of known rank."""

    dtype: DType
    shape: Shape


def operand(node: Node, index: int) -> Operand | None:
    """Give an input's type, or None if the input is left out."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    return Operand(value.type.dtype, value.type.shape)


def integer(node: Node, name: str, default: int | None = None) -> int | None:
    """Give an integer attribute, or the default if it is not there; None if it is no integer."""
    found = node.attributes.get(name, default)
    return found if isinstance(found, int) else None


def integers(
    node: Node, name: str, count: int, default: int | None = None, least: int = 0
) -> list[int] | None:
    """Give an attribute of so many integers, none of them smaller than ``least``.

    The default counts for each of them. None if there is neither attribute nor default, or if the
    attribute is something else.
    """
    found = node.attributes.get(name)
    if found is None:
        return None if default is None else [default] * count
    if not isinstance(found, list) or len(found) != count:
        return None
    return found if all(isinstance(item, int) and item >= least for item in found) else None
