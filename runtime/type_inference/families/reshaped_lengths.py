"""The lengths that a Reshape gives its output."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import Dim, Shape, shape_text
from ..contradiction import ContradictionError

__all__ = ["reshaped"]


def reshaped(data: Shape, target: Shape, allow_zero: bool) -> Shape:
    """Put the target's lengths where it has them, the data's for 0, and the rest for -1.

    0 is a length like others if allow_zero. An open length of the target is taken for the rest if
    it is the only one. Raises ContradictionError where data and target contradict each other.
    """
    result, copied = list(target), []
    for place, dim in enumerate(target):
        if dim == 0 and not allow_zero:
            if place >= len(data):
                raise _refusal(data, target, f"its 0 stands for axis {place}, which is not there")
            result[place] = data[place]
            copied.append(place)
        elif isinstance(dim, int) and dim < -1:
            raise _refusal(data, target, f"{dim} is no length")
    rest = [place for place, dim in enumerate(target) if dim == -1]
    if len(rest) > 1:
        raise _refusal(data, target, "only one length may be left to be found (-1)")
    if rest and 0 in result:
        raise _refusal(data, target, "next to a length of 0 the one for -1 could be anything")
    unknown = [place for place, dim in enumerate(target) if dim is None]
    if not rest and len(unknown) == 1 and 0 not in result:
        rest = unknown
    others = [dim for place, dim in enumerate(result) if place not in rest and place not in copied]
    left = [dim for place, dim in enumerate(data) if place not in copied]
    if not rest and unknown:
        return tuple(result)
    if not rest:
        is_empty = any(result[place] == 0 for place in copied)
        if not is_empty and not _may_be_equal(left, others):
            raise _refusal(data, target, "it has another number of elements")
        return tuple(result)
    found = _with_rest(result, rest[0], left, others)
    if found is None:
        raise _refusal(data, target, "its other lengths do not divide the number of elements")
    return found


def _refusal(data: Shape, target: Shape, why: str) -> ContradictionError:
    return ContradictionError(f"{shape_text(data)} cannot become {shape_text(target)}: {why}")


def _may_be_equal(left: Sequence[Dim], others: Sequence[Dim]) -> bool:
    one, symbols_left = _factors(left)
    other, symbols = _factors(others)
    return bool(symbols_left or symbols) or one == other


def _with_rest(
    result: list[Dim], place: int, left: Sequence[Dim], others: Sequence[Dim]
) -> Shape | None:
    """Put what is left of the elements at a place; None if the others do not divide them."""
    count, symbols = _factors(left)
    divisor, divisor_symbols = _factors(others)
    for symbol in list(divisor_symbols):
        if symbol is not None and symbol in symbols:
            symbols.remove(symbol)
            divisor_symbols.remove(symbol)
    result[place] = None
    if divisor_symbols:
        return tuple(result)
    if symbols:
        if len(symbols) == 1 and count == divisor:
            result[place] = symbols[0]
        return tuple(result)
    if count % divisor:
        return None
    result[place] = count // divisor
    return tuple(result)


def _factors(dims: Sequence[Dim]) -> tuple[int, list[str | None]]:
    count, symbols = 1, []
    for dim in dims:
        if isinstance(dim, int):
            count *= dim
        else:
            symbols.append(dim)
    return count, symbols
