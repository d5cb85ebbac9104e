"""Truth values that follow from lengths: content rules that compare, join and choose."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...graph import DType, Node
from .lengths import ContentRule, Element, Lengths, elementwise

__all__ = ["TRUTH_RULES"]

Inputs = Sequence[Lengths | None]

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
}


def _compare(node: Node, inputs: Inputs) -> Lengths | None:
    compare = _COMPARISONS[node.op_type]
    a, b = inputs[:2]
    if a is None or b is None or a.dtype is not b.dtype:
        return None

    def one(x: Element, y: Element) -> Element:
        if isinstance(x, (int, float)) and isinstance(y, (int, float)):
            return compare(x, y)
        if x is None or y is None:
            return None
        if x == y:
            return compare(0, 0)
        # A length may be 0 or as large as one likes: what holds for both ends holds for it.
        ends = (0, math.inf)
        if isinstance(x, str) and not isinstance(y, str):
            answers = {compare(end, y) for end in ends}
        elif isinstance(y, str) and not isinstance(x, str):
            answers = {compare(x, end) for end in ends}
        else:
            return None
        is_reached = node.op_type == "Equal" and _is_length(y if isinstance(x, str) else x)
        return answers.pop() if len(answers) == 1 and not is_reached else None

    return elementwise((a, b), DType.BOOL, one)


def _is_length(element: Element) -> bool:
    return isinstance(element, (int, float)) and element >= 0 and element == int(element)


def _logic(node: Node, inputs: Inputs) -> Lengths | None:
    a, b = inputs[:2]
    if a is None or b is None or a.dtype is not DType.BOOL or b.dtype is not DType.BOOL:
        return None
    decides = node.op_type == "Or"

    def one(x: Element, y: Element) -> Element:
        if x is decides or y is decides:
            return decides
        return None if x is None or y is None else not decides

    return elementwise((a, b), DType.BOOL, one)


def _not(node: Node, inputs: Inputs) -> Lengths | None:
    lengths = inputs[0]
    if lengths is None or lengths.dtype is not DType.BOOL:
        return None
    return elementwise((lengths,), DType.BOOL, lambda x: None if x is None else not x)


def _where(node: Node, inputs: Inputs) -> Lengths | None:
    condition, chosen, other = inputs[:3]
    if condition is None or chosen is None or other is None or chosen.dtype is not other.dtype:
        return None
    if condition.dtype is not DType.BOOL:
        return None

    def one(is_chosen: Element, x: Element, y: Element) -> Element:
        if is_chosen is None:
            return x if x == y else None
        return x if is_chosen else y

    return elementwise((condition, chosen, other), chosen.dtype, one)


TRUTH_RULES: Mapping[str, ContentRule] = {
    **dict.fromkeys(_COMPARISONS, _compare),
    "And": _logic,
    "Not": _not,
    "Or": _logic,
    "Where": _where,
}
