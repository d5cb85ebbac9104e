"""Arithmetic on lists of lengths: content rules that compute, exactly or not at all.

A result that does not fit its type, is not finite, or follows from a symbol in a way that a symbol
cannot say is open. Floats are computed in their own type by operations that IEEE 754 defines to the
last bit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph import DType, Node
from ..dims import product, total
from ..operands import integer
from .lengths import ContentRule, Element, Lengths, elementwise, known_integers

__all__ = ["NUMBER_RULES"]

Inputs = Sequence[Lengths | None]
Number = Any
"""An int, or a numpy float of the operands' type; bools are ints."""

_INTEGERS = (DType.INT64, DType.INT32)
_FLOATS = (DType.FLOAT32, DType.FLOAT64)
_NUMBERS = (*_INTEGERS, *_FLOATS)


def _fit(number: Number, dtype: DType) -> Element:
    """Return a result as an element; open if its type cannot hold it."""
    if dtype in _FLOATS:
        return float(number) if math.isfinite(number) else None
    bits = 8 * dtype.item_bytes - 1
    return number if -(1 << bits) <= number < 1 << bits else None


def _computed(compute: Callable[..., Number], dtype: DType, operands: Sequence[Element]) -> Element:
    if dtype in _FLOATS:
        with np.errstate(all="ignore"):
            return _fit(compute(*map(dtype.numpy.type, operands)), dtype)
    return _fit(compute(*operands), dtype)


def _is_number(element: Element) -> bool:
    return isinstance(element, (int, float))


def _binary(
    compute: Callable[[Number, Number], Number],
    of_symbol: Callable[[Element, Element], Element],
    dtypes: Sequence[DType] = _NUMBERS,
) -> ContentRule:
    """Make the rule of an operator; ``of_symbol`` says what it knows of elements that are open."""

    def rule(node: Node, inputs: Inputs) -> Lengths | None:
        a, b = inputs[:2]
        if a is None or b is None or a.dtype is not b.dtype or a.dtype not in dtypes:
            return None
        dtype = a.dtype

        def one(x: Element, y: Element) -> Element:
            if _is_number(x) and _is_number(y):
                return _computed(compute, dtype, (x, y))
            return of_symbol(x, y)

        return elementwise((a, b), dtype, one)

    return rule


def _sum_of_symbol(a: Element, b: Element) -> Element:
    if b == 0:
        return a
    return b if a == 0 else None


def _difference_of_symbol(a: Element, b: Element) -> Element:
    if b == 0:
        return a
    return 0 if a == b and a is not None else None


def _product_of_symbol(a: Element, b: Element) -> Element:
    if b == 1:
        return a
    return b if a == 1 else None


def _quotient(a: Number, b: Number) -> Number:
    """Divide; integers round toward zero. Division by zero has no result that is finite."""
    if not isinstance(a, int):
        return a / b
    if b == 0:
        return math.inf
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _quotient_of_symbol(a: Element, b: Element) -> Element:
    return a if b == 1 else None


def _remainder(a: int, b: int) -> Number:
    """Take the remainder with the divisor's sign."""
    return a % b if b else math.inf


def _c_remainder(a: int, b: int) -> Number:
    """Take the remainder with the dividend's sign."""
    return a - b * _quotient(a, b) if b else math.inf


def _remainder_of_symbol(a: Element, b: Element) -> Element:
    return 0 if b in (1, -1) else None


_MODULO: Mapping[int | None, ContentRule] = {
    0: _binary(_remainder, _remainder_of_symbol, _INTEGERS),
    1: _binary(_c_remainder, _remainder_of_symbol, _INTEGERS),
}


def _modulo(node: Node, inputs: Inputs) -> Lengths | list[Lengths] | None:
    rule = _MODULO.get(integer(node, "fmod", 0))
    return None if rule is None else rule(node, inputs)


def _extreme(choose: Callable[..., int], is_max: bool) -> ContentRule:
    def pick(elements: Sequence[Element]) -> Element:
        if all(isinstance(element, int) for element in elements):
            return choose(elements)
        distinct = set(elements)
        if is_max and len(distinct) > 1:
            # A length is never negative, so that it is at least what is not positive.
            distinct = {item for item in distinct if not isinstance(item, int) or item > 0}
        return distinct.pop() if len(distinct) == 1 else None

    def rule(node: Node, inputs: Inputs) -> Lengths | None:
        given = [lengths for lengths in inputs[: len(node.inputs)] if lengths is not None]
        if not given or any(item.dtype is not given[0].dtype for item in given):
            return None
        if given[0].dtype not in _INTEGERS:
            return None
        return elementwise(given, given[0].dtype, lambda *row: pick(row))

    return rule


def _unary(
    compute: Callable[[Number], Number], dtypes: Sequence[DType], keeps_lengths: bool
) -> ContentRule:
    """Make the rule of an operator; keeps_lengths: it changes no number that is a length."""

    def rule(node: Node, inputs: Inputs) -> Lengths | None:
        lengths = inputs[0]
        if lengths is None or lengths.dtype not in dtypes:
            return None
        dtype = lengths.dtype

        def one(x: Element) -> Element:
            if _is_number(x):
                return _computed(compute, dtype, (x,))
            return x if keeps_lengths else None

        return elementwise((lengths,), dtype, one)

    return rule


def _cast(node: Node, inputs: Inputs) -> Lengths | None:
    lengths, to = inputs[0], integer(node, "to")
    target = next((dtype for dtype in (*_NUMBERS, DType.BOOL) if dtype.value == to), None)
    if lengths is None or target is None:
        return None

    def one(x: Element) -> Element:
        if not isinstance(x, (int, float)):
            return None if target is DType.BOOL else x
        if target is DType.BOOL:
            return bool(x)
        if target in _INTEGERS:
            return _fit(int(x), target)
        with np.errstate(all="ignore"):
            result = _fit(target.numpy.type(x), target)
        # How an integer is rounded to a float is not followed, only those that need not be.
        return result if result == x or isinstance(x, float) else None

    return elementwise((lengths,), target, one)


def _reduce(node: Node, inputs: Inputs) -> Lengths | None:
    lengths, axes = inputs[0], [] if inputs[1] is None else known_integers(inputs[1])
    if lengths is None or lengths.is_scalar or lengths.dtype not in _INTEGERS or axes is None:
        return None
    if axes not in ([], [0], [-1]) or (not axes and integer(node, "noop_with_empty_axes", 0)):
        return None
    dims = tuple(None if isinstance(dim, float) else dim for dim in lengths.dims)
    known = known_integers(lengths)
    result: Element = None
    if node.op_type == "ReduceProd":
        result = product(dims)
    elif node.op_type == "ReduceSum":
        result = total(dims)
    elif known:
        result = max(known) if node.op_type == "ReduceMax" else min(known)
    if isinstance(result, int):
        result = _fit(result, lengths.dtype)
    return Lengths((result,), integer(node, "keepdims", 1) == 0, lengths.dtype)


NUMBER_RULES: Mapping[str, ContentRule] = {
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"), _reduce),
    "Abs": _unary(abs, _NUMBERS, keeps_lengths=True),
    "Add": _binary(operator.add, _sum_of_symbol),
    "Cast": _cast,
    "Ceil": _unary(np.ceil, _FLOATS, keeps_lengths=True),
    "Div": _binary(_quotient, _quotient_of_symbol),
    "Floor": _unary(np.floor, _FLOATS, keeps_lengths=True),
    "Max": _extreme(max, is_max=True),
    "Min": _extreme(min, is_max=False),
    "Mod": _modulo,
    "Mul": _binary(operator.mul, _product_of_symbol),
    "Neg": _unary(operator.neg, _NUMBERS, keeps_lengths=False),
    "Round": _unary(np.rint, _FLOATS, keeps_lengths=True),
    "Sub": _binary(operator.sub, _difference_of_symbol),
}
