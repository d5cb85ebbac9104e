"""Einsum as Transposes, a MatMul or a Mul for each further operand, and a sum over what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from ..graph import Value
from .composition import Composition, CompositionError

__all__ = ["einsum"]

Axis = str
"""A letter of the equation; an axis that ``...`` stands for is its number, counted from the end."""


class _Term(NamedTuple):
    """A value and what its axes are called."""

    value: Value
    axes: tuple[Axis, ...]


def einsum(made: Composition) -> list[Value]:
    """Multiply the operands one after another, each time summing over what nothing else names.

    Raises CompositionError for an axis that a term names twice, for a sum over ``...``, and for
    operands whose ranks are not known.
    """
    values = [made.given(index) for index in range(len(made.inputs))]
    ranks = [made.rank(value) for value in values]
    terms, wanted = _read(made.node.text("equation").replace(" ", ""), ranks)
    done, *rest = _without_ones(
        made, [_Term(value, axes) for value, axes in zip(values, terms, strict=True)]
    )
    while rest:
        other, *rest = rest
        kept = {*wanted, *(axis for term in rest for axis in term.axes)}
        done = _product(made, _summed(made, done, {*kept, *other.axes}), other, kept)
    done = _ordered(made, _summed(made, done, set(wanted)), wanted)
    if done.value.producer not in made.nodes:
        return [made.add("Identity", done.value)]
    return [done.value]


def _read(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[Axis, ...]], tuple[Axis, ...]]:
    """Return the axes of each operand and of the result."""
    given, arrow, result = equation.partition("->")
    texts = given.split(",")
    if len(texts) != len(ranks):
        raise CompositionError(f"{equation!r} is about {len(texts)} operands, not {len(ranks)}")
    widths = [rank - len(text.replace("...", "")) for text, rank in zip(texts, ranks, strict=True)]
    terms = [_axes(text, width) for text, width in zip(texts, widths, strict=True)]
    others = tuple(str(number) for number in reversed(range(max(0, *widths))))
    if not arrow:
        counts = Counter(axis for term in terms for axis in term)
        once = sorted(axis for axis, count in counts.items() if axis.isalpha() and count == 1)
        wanted = (*others, *once)
    else:
        wanted = _axes(result, len(others))
    known = {axis for term in terms for axis in term}
    if len(set(wanted)) < len(wanted) or not known >= set(wanted):
        raise CompositionError(f"{equation!r} names an axis of its result twice, or one of none")
    if not set(others) <= set(wanted):
        raise CompositionError(f"{equation!r} sums over the axes that '...' stands for")
    return terms, wanted


def _axes(text: str, width: int) -> tuple[Axis, ...]:
    before, dots, after = text.partition("...")
    if width < 0 or (not dots and width):
        raise CompositionError(f"{text!r} does not name all axes")
    others = (str(number) for number in reversed(range(width)))
    axes = (*before, *others, *after) if dots else tuple(before)
    letters = before + after
    if (not letters.isalpha() and letters) or len(set(letters)) < len(letters):
        raise CompositionError(f"{text!r} names an axis twice, or by something else than a letter")
    return axes


def _without_ones(made: Composition, terms: Sequence[_Term]) -> list[_Term]:
    """Drop an axis of length 1 where another term may be longer: it is repeated along that one."""
    longer = {
        axis
        for term in terms
        for axis, dim in zip(term.axes, made.shape(term.value), strict=True)
        if axis.isalpha() and dim != 1
    }
    return [_without(made, term, longer) for term in terms]


def _without(made: Composition, term: _Term, longer: Collection[Axis]) -> _Term:
    shape = made.shape(term.value)
    places = [place for place, axis in enumerate(term.axes) if axis in longer and shape[place] == 1]
    if not places:
        return term
    kept = tuple(axis for place, axis in enumerate(term.axes) if place not in places)
    return _Term(made.add("Squeeze", term.value, made.integers(*places)), kept)


def _summed(made: Composition, term: _Term, kept: Collection[Axis]) -> _Term:
    """Sum over the axes that nothing else names."""
    places = [place for place, axis in enumerate(term.axes) if axis not in kept]
    if not places:
        return term
    value = made.add("ReduceSum", term.value, made.integers(*places), keepdims=0)
    return _Term(value, tuple(axis for axis in term.axes if axis in kept))


def _ordered(made: Composition, term: _Term, axes: Sequence[Axis]) -> _Term:
    """Bring the axes into an order."""
    if term.axes == tuple(axes):
        return term
    perm = [term.axes.index(axis) for axis in axes]
    return _Term(made.add("Transpose", term.value, perm=perm), tuple(axes))


def _product(made: Composition, one: _Term, other: _Term, kept: Collection[Axis]) -> _Term:
    """Multiply two terms and sum over the axes that they share and nothing else names.

    Shared axes that are kept come first, as those of a stack of matrices; among them what ``...``
    stands for comes first of all, where a term without it is repeated.
    """
    other = _summed(made, other, {*kept, *one.axes})
    shared = [axis for axis in one.axes if axis in other.axes]
    others = sorted({axis for axis in (*one.axes, *other.axes) if axis.isdigit()}, key=int)
    stack = [*reversed(others), *(axis for axis in shared if axis in kept and axis.isalpha())]
    summed = [axis for axis in shared if axis not in kept]
    rows = [axis for axis in one.axes if axis not in other.axes and axis.isalpha()]
    columns = [axis for axis in other.axes if axis not in one.axes and axis.isalpha()]
    left = _ordered(made, one, [*_of(stack, one), *rows, *summed])
    right = _ordered(made, other, [*_of(stack, other), *summed, *columns])
    axes = (*stack, *rows, *columns)
    if not summed:
        first = _unsqueezed(made, left.value, len(left.axes), len(columns))
        second = _unsqueezed(made, right.value, len(_of(stack, other)), len(rows))
        return _Term(made.add("Mul", first, second), axes)
    depth = len(_of(stack, one))
    first = _merged(made, left.value, depth, len(rows), len(summed))
    depth = len(_of(stack, other))
    held = _held_to(made, right.value, depth, left, len(summed), len(columns))
    second = _merged(made, held, depth, len(summed), len(columns))
    value = made.add("MatMul", first, second)
    if len(rows) == len(columns) == 1:
        return _Term(value, axes)
    return _Term(_split(made, value, len(stack), left, rows, right, columns), axes)


def _of(axes: Sequence[Axis], term: _Term) -> list[Axis]:
    return [axis for axis in axes if axis in term.axes]


def _unsqueezed(made: Composition, value: Value, place: int, count: int) -> Value:
    if not count:
        return value
    return made.add("Unsqueeze", value, made.integers(*range(place, place + count)))


def _held_to(
    made: Composition, value: Value, depth: int, left: _Term, count: int, columns: int
) -> Value:
    """Have lengths refused that are not the left's last ``count``, though their product may be.

    Where they are equal this is an Expand that does nothing, which devices leave out.
    """
    place = len(left.axes) - count
    wanted, given = made.shape(left.value)[place:], made.shape(value)[depth : depth + count]
    if count < 2 or (wanted == given and None not in wanted):
        return value
    lengths = _lengths(made, left.value, place, len(left.axes))
    return made.add("Expand", value, _joined(made, [*lengths, *[1] * columns]))


def _merged(made: Composition, value: Value, depth: int, rows: int, columns: int) -> Value:
    """Make one axis of each group behind the first axes: a stack of matrices."""
    if rows == columns == 1:
        return value
    groups = ((depth, rows), (depth + rows, columns))
    pieces = _lengths(made, value, 0, depth)
    for start, count in groups:
        pieces.append(_length_of_group(made, value, start, count))
    return made.add("Reshape", value, _joined(made, pieces), allowzero=1)


def _split(
    made: Composition,
    value: Value,
    depth: int,
    left: _Term,
    rows: Sequence[Axis],
    right: _Term,
    columns: Sequence[Axis],
) -> Value:
    """Give the rows and columns of a matmul their own axes again."""
    pieces = _lengths(made, value, 0, depth)
    for term, axes in ((left, rows), (right, columns)):
        for axis in axes:
            place = term.axes.index(axis)
            pieces += _lengths(made, term.value, place, place + 1)
    return made.add("Reshape", value, _joined(made, pieces), allowzero=1)


def _lengths(made: Composition, value: Value, start: int, end: int) -> list[int | Value]:
    """Return lengths from one axis to another: numbers, or what tells them from the value."""
    found: list[int | Value] = []
    for place, dim in enumerate(made.shape(value)[start:end], start):
        if isinstance(dim, int):
            found.append(dim)
        else:
            found.append(made.add("Shape", value, start=place, end=place + 1))
    return found


def _length_of_group(made: Composition, value: Value, start: int, count: int) -> int | Value:
    """Return the product of the lengths of some axes; 1 for none."""
    dims = made.shape(value)[start : start + count]
    lengths = [dim for dim in dims if isinstance(dim, int)]
    if len(lengths) == len(dims):
        return int(np.prod(lengths, dtype=np.int64))
    whole = made.add("Shape", value, start=start, end=start + count)
    return made.add("ReduceProd", whole, made.integers(0), keepdims=1)


def _joined(made: Composition, pieces: Sequence[int | Value]) -> Value:
    """Return a list of lengths as one value."""
    if all(isinstance(piece, int) for piece in pieces):
        return made.integers(*(piece for piece in pieces if isinstance(piece, int)))
    parts = [made.integers(piece) if isinstance(piece, int) else piece for piece in pieces]
    return parts[0] if len(parts) == 1 else made.add("Concat", *parts, axis=0)
