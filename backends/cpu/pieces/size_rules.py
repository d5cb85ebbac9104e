"""What operators of shape arithmetic do to numbers of Python: an int, or a list of them.

A function may raise an ArithmeticError, a LookupError or a ValueError where numpy would do
something else, or nothing; it never gives another result than the operator does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from math import prod
from operator import add, itemgetter, mul, sub
from typing import Any, NamedTuple

from ....runtime.graph import Node, TensorType
from .stepped_nodes import STANDARD_DOMAINS

__all__ = ["LIMIT", "Function", "Rule", "find_rule"]

LIMIT = 64
"""The most numbers of a list: of many, numpy is faster."""

Function = Callable[..., Any]
"""Takes and gives an int or a list; of Shape the shape of its input."""


class Rule(NamedTuple):
    """How a node is computed from those of its inputs that are ``operands``."""

    function: Function
    operands: tuple[int, ...]


Make = Callable[[Node], Rule | None]


_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def find_rule(node: Node) -> Rule | None:
    """Return the rule of a node whose other inputs are constants; None if it has none."""
    if node.domain not in STANDARD_DOMAINS or node.user_kernel is not None:
        return None
    make = _RULES.get(node.op_type)
    return None if make is None or len(node.outputs) != 1 else make(node)


def _shape(node: Node) -> Rule | None:
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return Rule(lambda shape: list(shape[start:end]), (0,))


def _gather(node: Node) -> Rule | None:
    indices = node.input_at(1)
    if indices is None or indices.constant is None or indices.constant.size > LIMIT:
        return None
    if _rank(node, 0) != 1 or indices.constant.ndim > 1 or not _is_along_first(node):
        return None
    if indices.constant.ndim == 0:
        return Rule(itemgetter(int(indices.constant)), (0,))
    places = indices.constant.tolist()
    return Rule(lambda numbers: [numbers[place] for place in places], (0,))


def _concat(node: Node) -> Rule | None:
    ranks = {_rank(node, place) for place in range(len(node.inputs))}
    if ranks != {1} or not _is_along_first(node):
        return None
    return Rule(lambda *lists: [*chain(*lists)], tuple(range(len(node.inputs))))


def _unsqueeze(node: Node) -> Rule | None:
    if _rank(node, 0) != 0 or not _names_first(node, 1):
        return None
    return Rule(lambda number: [number], (0,))


def _squeeze(node: Node) -> Rule | None:
    if _rank(node, 0) != 1 or (node.input_at(1) is not None and not _names_first(node, 1)):
        return None
    return Rule(_only, (0,))


def _reshape(node: Node) -> Rule | None:
    target = node.input_at(1)
    if target is None or target.constant is None or target.constant.ndim != 1:
        return None
    lengths, rank = node.integers_at(1), _rank(node, 0)
    if rank == 1 and lengths == [-1]:
        return Rule(list, (0,))
    if rank == 1 and lengths == []:
        return Rule(_only, (0,))
    if rank == 0 and lengths in ([-1], [1]):
        return Rule(lambda number: [number], (0,))
    return None


def _reduction(reduce: Function) -> Make:
    def make(node: Node) -> Rule | None:
        is_whole = node.input_at(1) is None and not node.attributes.get("noop_with_empty_axes", 0)
        if _rank(node, 0) != 1 or not (is_whole or _names_first(node, 1)):
            return None
        if node.attributes.get("keepdims", 1):
            return Rule(lambda numbers: [_bounded(reduce(numbers))], (0,))
        return Rule(lambda numbers: _bounded(reduce(numbers)), (0,))

    return make


def _arithmetic(compute: Function) -> Make:
    def make(node: Node) -> Rule | None:
        if len(node.inputs) != 2 or _rank(node, 0) != 0 or _rank(node, 1) != 0:
            return None
        return Rule(lambda one, other: _bounded(compute(one, other)), (0, 1))

    return make


def _only(numbers: list[int]) -> int:
    (number,) = numbers
    return number


def _bounded(number: int) -> int:
    if not _LEAST <= number <= _MOST:
        raise OverflowError(f"{number} is more than 64 bits hold")
    return number


def _rank(node: Node, place: int) -> int | None:
    """Return the rank of an input; None if it is not known, or not given."""
    value = node.input_at(place)
    kind = None if value is None else value.type
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    return len(kind.shape)


def _is_along_first(node: Node) -> bool:
    return node.attributes.get("axis", 0) in (0, -1)


def _names_first(node: Node, place: int) -> bool:
    """True for axes that are a constant naming the first of one."""
    return node.integers_at(place) in ([0], [-1])


_RULES: Mapping[str, Make] = {
    "Add": _arithmetic(add),
    "Concat": _concat,
    "Gather": _gather,
    "Max": _arithmetic(max),
    "Min": _arithmetic(min),
    "Mul": _arithmetic(mul),
    "ReduceMax": _reduction(max),
    "ReduceMin": _reduction(min),
    "ReduceProd": _reduction(prod),
    "ReduceSum": _reduction(sum),
    "Reshape": _reshape,
    "Shape": _shape,
    "Squeeze": _squeeze,
    "Sub": _arithmetic(sub),
    "Unsqueeze": _unsqueeze,
}
