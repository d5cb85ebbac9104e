"""The lengths that a Reshape gives its output."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Dim, Shape

__all__ = ["reshaped"]


def reshaped(data: Shape, target: Shape, allow_zero: bool) -> Shape | None:
    """Put the target's lengths where it has them, the data's for 0, and the rest for -1.

    0 is a length like others if allow_zero. An open length of the target is taken for the rest if
    it is the only one. None: data and target contradict each other.
    """
    result, copied = list(target), []
    for place, dim in enumerate(target):
        if dim == 0 and not allow_zero:
            if place >= len(data):
                return None
            result[place] = data[place]
            copied.append(place)
        elif isinstance(dim, int) and dim < -1:
            return None
    rest = [place for place, dim in enumerate(target) if dim == -1]
    # Next to a length of 0 the rest could be anything.
    if len(rest) > 1 or (rest and 0 in result):
        return None
    unknown = [place for place, dim in enumerate(target) if dim is None]
    if not rest and len(unknown) == 1 and 0 not in result:
        rest = unknown
    others = [dim for place, dim in enumerate(result) if place not in rest and place not in copied]
    left = [dim for place, dim in enumerate(data) if place not in copied]
    if not rest and unknown:
        return tuple(result)
    if not rest:
        return tuple(result) if _may_be_equal(left, others) else None
    return _with_rest(result, rest[0], left, others)


def _may_be_equal(left: Sequence[Dim], others: Sequence[Dim]) -> bool:
    one, symbols_left = _factors(left)
    other, symbols = _factors(others)
    return bool(symbols_left or symbols) or one == other


def _with_rest(
    result: list[Dim], place: int, left: Sequence[Dim], others: Sequence[Dim]
) -> Shape | None:
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
