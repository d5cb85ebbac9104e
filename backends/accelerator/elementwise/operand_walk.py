"""Walking several operands in one order: broadcasts and permutations as strides. Pure.

A kernel gives each work-item one element of the result, by its number in row-major order. Where
another operand has the element that belongs to it is an expression of that number, as simple as the
shapes allow. Lengths and strides are arguments of the kernel, so its text depends on the pattern of
a broadcast and not on the shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import GraphError
from ....runtime.lowering.strides import row_major

__all__ = ["IndexCode", "Walk", "broadcast_strides", "index_code", "plan_walk"]


@dataclass(frozen=True)
class Walk:
    """Axes to walk, outermost first; ``strides`` are those of each operand, in elements."""

    lengths: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class IndexCode:
    """``lines`` come before ``expressions`` are used, one for each operand of the walk.

    ``parameters`` are the int arguments that both need, as (name, value).
    """

    lines: tuple[str, ...]
    expressions: tuple[str, ...]
    parameters: tuple[tuple[str, int], ...]


def broadcast_strides(given: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides with which a dense tensor is read as one of ``shape``; 0 repeats.

    One of a single element may have more axes: exporters write bounds of Clip as lists. Raises
    GraphError if it does not broadcast.
    """
    if all(length == 1 for length in given):
        return (0,) * len(shape)
    lead = len(shape) - len(given)
    pairs = zip(given, shape[max(lead, 0) :], strict=False)
    if lead < 0 or any(have not in (1, want) for have, want in pairs):
        raise GraphError(f"an operand of shape {list(given)} does not broadcast to {list(shape)}")
    own = [0 if n == 1 else stride for n, stride in zip(given, row_major(given), strict=True)]
    return (0,) * lead + tuple(own)


def plan_walk(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Walk:
    """Join axes that all operands step through as one, and leave out those of length 1."""
    lengths: list[int] = []
    columns: list[tuple[int, ...]] = []
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        column = tuple(own[axis] for own in strides)
        if lengths and all(a == b * length for a, b in zip(columns[-1], column, strict=True)):
            lengths[-1] *= length
            columns[-1] = column
        else:
            lengths.append(length)
            columns.append(column)
    return Walk(
        tuple(lengths),
        tuple(tuple(column[k] for column in columns) for k in range(len(strides))),
    )


def index_code(walk: Walk, index: str, prefix: str = "") -> IndexCode:
    """Write how each operand's index follows from ``index``, the element's number in the walk.

    ``prefix`` keeps the names of two walks in one kernel apart.
    """
    dense = row_major(walk.lengths)
    operands = list(enumerate(walk.strides))
    odd = [(k, own) for k, own in operands if own != dense and any(own)]
    used = {axis for _, own in odd for axis, stride in enumerate(own) if stride}
    lines, parameters = [], []
    if used:
        lines.append(f"int {prefix}rest = {index};")
    for axis in reversed(range(min(used, default=0), len(walk.lengths))):
        if not used:
            break
        length = f"{prefix}n{axis}"
        if axis == 0:
            lines.append(f"const int {prefix}c0 = {prefix}rest;")
            continue
        parameters.append((length, walk.lengths[axis]))
        if axis in used:
            lines.append(f"const int {prefix}c{axis} = {prefix}rest % {length};")
        lines.append(f"{prefix}rest /= {length};")
    expressions = []
    for k, own in operands:
        if own == dense:
            expressions.append(index)
            continue
        terms = []
        for axis, stride in enumerate(own):
            if stride:
                name = f"{prefix}s{k}_{axis}"
                parameters.append((name, stride))
                terms.append(f"{prefix}c{axis} * {name}")
        expressions.append(" + ".join(terms) or "0")
    return IndexCode(tuple(lines), tuple(expressions), tuple(parameters))
