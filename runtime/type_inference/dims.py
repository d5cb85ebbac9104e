"""Arithmetic of lengths that may be symbols or open, of axes, and of shapes.

An open length (None) is one that nothing is known of. Two symbols of one name are one length. A
function raises ContradictionError where its operands contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..graph import Dim, Shape, shape_text
from .contradiction import ContradictionError

__all__ = [
    "MOST_LENGTH",
    "agree",
    "axes_of",
    "axis_of",
    "broadcast",
    "broadcast_lengths",
    "ceil_divide",
    "divide",
    "is_contradiction",
    "merge",
    "product",
    "total",
    "with_dims",
]

MOST_LENGTH = 2**63 - 1
"""The greatest length that a shape can have in ONNX."""


def axis_of(axis: object, rank: int) -> int:
    """Count an axis from the front."""
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ContradictionError(f"it names axis {axis!r}, and a tensor of {rank} axes has none")
    return axis + rank if axis < 0 else axis


def axes_of(axes: Iterable[object], rank: int) -> list[int]:
    """Count axes from the front, in the order given, each of them given once."""
    found: list[int] = []
    for axis in axes:
        place = axis_of(axis, rank)
        if place in found:
            raise ContradictionError(f"it names axis {axis} twice, of a tensor of {rank} axes")
        found.append(place)
    return found


def with_dims(shape: Shape, axes: Sequence[int], dims: Sequence[Dim]) -> Shape:
    """Put other lengths at these axes, which count from the front."""
    changed = list(shape)
    for axis, dim in zip(axes, dims, strict=True):
        changed[axis] = dim
    return tuple(changed)


def product(dims: Iterable[Dim]) -> Dim:
    """Multiply lengths: open, unless all are known, one is 0, or all but a symbol are 1."""
    known, others = 1, []
    for dim in dims:
        if isinstance(dim, int):
            known *= dim
        else:
            others.append(dim)
    if known == 0 or not others:
        return known
    return others[0] if known == 1 and len(others) == 1 else None


def total(dims: Iterable[Dim]) -> Dim:
    """Add lengths: open, unless all are known, or all but a symbol are 0."""
    known, others = 0, []
    for dim in dims:
        if isinstance(dim, int):
            known += dim
        else:
            others.append(dim)
    if not others:
        return known
    return others[0] if known == 0 and len(others) == 1 else None


def divide(dim: Dim, divisor: int) -> Dim:
    """Divide a length, rounding down; open for one that is not known. divisor > 0."""
    if isinstance(dim, int):
        return dim // divisor
    return dim if divisor == 1 else None


def agree(one: Dim, other: Dim) -> bool:
    """False for two lengths that are known and differ."""
    return one == other or not isinstance(one, int) or not isinstance(other, int)


def is_contradiction(one: Sequence[Dim], other: Sequence[Dim]) -> bool:
    """True for shapes that cannot be the same: other ranks, or other known lengths."""
    return len(one) != len(other) or not all(map(agree, one, other))


def merge(one: Shape, other: Shape) -> Shape:
    """Join what is known of one shape; a length counts more than a symbol, the first of two."""
    if one == other:
        return one
    if is_contradiction(one, other):
        raise ContradictionError(f"{shape_text(one)} and {shape_text(other)} have to be the same")
    return tuple(
        b if a is None or (isinstance(b, int) and not isinstance(a, int)) else a
        for a, b in zip(one, other, strict=True)
    )


def broadcast(shapes: Iterable[Shape]) -> Shape:
    """Broadcast shapes as numpy does.

    1 gives way, and a length other than 1 counts more than a symbol. Two different symbols, or a
    symbol and an open length, leave a length open. No shapes give a scalar's.
    """
    result: Shape = ()
    for shape in shapes:
        if shape == result or not shape:
            continue
        result = _broadcast_two(result, shape) if result else shape
    return result


def broadcast_lengths(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Broadcast shapes of known lengths as numpy does."""
    return tuple(dim for dim in broadcast(map(tuple, shapes)) if isinstance(dim, int))


def spreads_over(part: Sequence[Dim], whole: Sequence[Dim]) -> bool:
    """True if a tensor of the one shape may be repeated to fill the other, and it stays that."""
    if len(part) > len(whole):
        return False
    pairs = zip(reversed(part), reversed(whole), strict=False)
    return all(dim == 1 or agree(dim, other) for dim, other in pairs)


def _broadcast_two(one: Shape, other: Shape) -> Shape:
    if len(one) < len(other):
        one, other = other, one
    lead = len(one) - len(other)
    dims: list[Dim] = list(one[:lead])
    for a, b in zip(one[lead:], other, strict=True):
        if a == b or b == 1:
            dims.append(a)
        elif a == 1:
            dims.append(b)
        elif isinstance(a, int):
            if isinstance(b, int):
                raise ContradictionError(
                    f"the shapes {shape_text(one)} and {shape_text(other)} do not broadcast: "
                    f"{a} and {b} differ, and neither is 1"
                )
            dims.append(a)
        else:
            dims.append(b if isinstance(b, int) else None)
    return tuple(dims)


def ceil_divide(count: int, divisor: int) -> int:
    """Divide, rounding up."""
    return -(-count // divisor)
