"""What rules read of a node: its operands and its attributes, checked before they are believed."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ..graph import Dim, DType, Node, Shape, TensorType, shape_text
from .contradiction import ContradictionError
from .dims import agree, is_contradiction, spreads_over

__all__ = [
    "EIGHT_BITS",
    "Operand",
    "element_type",
    "integer",
    "integers",
    "operand",
    "require_length",
    "require_rank",
    "require_same_type",
    "require_shape",
    "require_spread",
    "require_type",
]

EIGHT_BITS = (DType.INT8, DType.UINT8)


class Operand(NamedTuple):
    """An input that is given, a tensor of known rank."""

    dtype: DType
    shape: Shape


def operand(node: Node, index: int) -> Operand | None:
    """Return an input's type, or None if the input is left out."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    return Operand(value.type.dtype, value.type.shape)


def integer(node: Node, name: str, default: int | None = None) -> int | None:
    """Return an integer attribute, or the default if it is not there; None if it is no integer."""
    found = node.attributes.get(name, default)
    return found if isinstance(found, int) else None


def integers(
    node: Node, name: str, count: int, default: int | None = None, least: int = 0
) -> list[int] | None:
    """Return an attribute of ``count`` integers, none of them smaller than ``least``.

    The default counts for each of them. None if there is neither attribute nor default. Raises
    ContradictionError if the attribute is something else.
    """
    found = node.attributes.get(name)
    if found is None:
        return None if default is None else [default] * count
    if not isinstance(found, list) or len(found) != count:
        raise ContradictionError(
            f"its attribute {name!r} is {found}, and has to be {count} integers"
        )
    if not all(isinstance(item, int) and item >= least for item in found):
        raise ContradictionError(
            f"its attribute {name!r} is {found}, and none of its integers may be below {least}"
        )
    return found


def element_type(node: Node, name: str, default: DType | None = None) -> DType | None:
    """Return the element type whose number an attribute is; the default if there is none."""
    found = node.attributes.get(name)
    if found is None:
        return default
    try:
        return DType(found if isinstance(found, int) else None)
    except ValueError:
        raise ContradictionError(
            f"its attribute {name!r} is {found!r}, which is no element type of ONNX"
        ) from None


def require_type(what: str, given: Operand, dtypes: Collection[DType]) -> None:
    """Raise unless an operand has one of these element types."""
    if given.dtype not in dtypes:
        labels = " or ".join(dtype.label for dtype in dtypes)
        raise ContradictionError(f"{what} are {given.dtype.label}, and have to be {labels}")


def require_same_type(what: str, one: Operand, other: Operand) -> None:
    """Raise unless two operands have one element type."""
    if one.dtype is not other.dtype:
        raise ContradictionError(
            f"{what} have to be of one element type, and are {one.dtype.label} and "
            f"{other.dtype.label}"
        )


def require_rank(what: str, given: Operand, least: int, most: int | None = None) -> None:
    """Raise unless an operand has ``least`` axes, or from there to ``most``; -1: any number."""
    most = least if most is None else most
    rank = len(given.shape)
    if rank < least or (most >= 0 and rank > most):
        if most < 0:
            wanted = f"at least {least}"
        else:
            wanted = str(least) if least == most else f"{least} to {most}"
        raise ContradictionError(
            f"{what} of shape {shape_text(given.shape)} has {rank} axes, and {wanted} are wanted"
        )


def require_shape(what: str, given: Operand, *shape: Dim) -> None:
    """Raise if an operand cannot have this shape, as far as it is known."""
    if is_contradiction(given.shape, shape):
        raise ContradictionError(
            f"{what} has the shape {shape_text(given.shape)}, and {shape_text(shape)} is wanted"
        )


def require_spread(what: str, given: Operand, whole: Shape) -> None:
    """Raise if an operand cannot be repeated to fill this shape without changing it."""
    if not spreads_over(given.shape, whole):
        raise ContradictionError(
            f"{what} of shape {shape_text(given.shape)} cannot be spread over {shape_text(whole)}"
        )


def require_length(what: str, given: Dim, wanted: Dim) -> None:
    """Raise for two lengths that are known and differ."""
    if not agree(given, wanted):
        raise ContradictionError(f"{what} is {given}, and {wanted} is wanted")
