"""Arithmetic on lengths: what lists and single integers hold, as products that may have the batch.

A rule returns the numbers of its node's output; None says that they are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...graph import DType, Node
from .size import ONE, Size, product
from .traced_value import FEW, Traced, given, integer, known_integers

__all__ = ["SIZE_RULES", "SizeRule"]

Inputs = Sequence[Traced | None]
Numbers = tuple[Size, ...] | None
SizeRule = Callable[[Node, Inputs], Numbers]

_ZERO = Size(0)
_INTEGERS = (DType.INT64, DType.INT32)


def _numbers(inputs: Inputs, index: int = 0) -> Numbers:
    found = given(inputs, index)
    return None if found is None else found.numbers


def _same(node: Node, inputs: Inputs) -> Numbers:
    return _numbers(inputs)


def _cast(node: Node, inputs: Inputs) -> Numbers:
    return (
        _numbers(inputs) if integer(node, "to", 0) in [kind.value for kind in _INTEGERS] else None
    )


def _shape(node: Node, inputs: Inputs) -> Numbers:
    data = given(inputs, 0)
    if data is None or data.dims is None:
        return None
    end = node.attributes.get("end")
    return data.dims[integer(node, "start", 0) : None if end is None else int(end)]


def _size(node: Node, inputs: Inputs) -> Numbers:
    data = given(inputs, 0)
    return None if data is None or data.dims is None else (product(data.dims),)


def _gather(node: Node, inputs: Inputs) -> Numbers:
    numbers, places = _numbers(inputs), known_integers(given(inputs, 1))
    if numbers is None or places is None:
        return None
    if any(not -len(numbers) <= place < len(numbers) for place in places):
        return None
    return tuple(numbers[place] for place in places)


def _slice(node: Node, inputs: Inputs) -> Numbers:
    numbers = _numbers(inputs)
    starts, ends = known_integers(given(inputs, 1)), known_integers(given(inputs, 2))
    steps = [1] if given(inputs, 4) is None else known_integers(given(inputs, 4))
    if numbers is None or not starts or not ends or not steps or steps[0] < 1:
        return None
    return numbers[starts[0] : ends[0] : steps[0]]


def _concat(node: Node, inputs: Inputs) -> Numbers:
    found: list[Size] = []
    for item in inputs:
        if item is None or item.numbers is None:
            return None
        found += item.numbers
    return tuple(found)


def _constant_of_shape(node: Node, inputs: Inputs) -> Numbers:
    counts = known_integers(given(inputs, 0))
    array = node.attributes.get("value")
    if counts is None or len(counts) > 1 or not isinstance(array, np.ndarray):
        return None
    count = counts[0] if counts else 1
    if array.dtype.kind != "i" or not 0 <= count <= FEW:
        return None
    return (Size(int(array.reshape(-1)[0])),) * count


def _elementwise(function: Callable[..., Size | None]) -> SizeRule:
    def rule(node: Node, inputs: Inputs) -> Numbers:
        lists = [item.numbers for item in inputs if item is not None and item.numbers is not None]
        counts = {len(numbers) for numbers in lists} - {1}
        if len(lists) < len(inputs) or len(counts) > 1:
            return None
        count = counts.pop() if counts else 1
        rows = zip(*(item * count if len(item) == 1 else item for item in lists), strict=True)
        found = [function(*row) for row in rows]
        known = tuple(item for item in found if item is not None)
        return known if len(known) == len(found) else None

    return rule


def _add(one: Size, other: Size) -> Size | None:
    if one.known is not None and other.known is not None:
        return Size(one.known + other.known)
    if _ZERO in (one, other):
        return one if other == _ZERO else other
    return None


def _subtract(one: Size, other: Size) -> Size | None:
    return _add(one, other * Size(-1))


def _equal(one: Size, other: Size) -> Size | None:
    if one == other:
        return ONE
    if one.known is not None and other.known is not None:
        return _ZERO
    is_apart = any(
        length.is_length and number.known is not None and number.known < 0
        for length, number in ((one, other), (other, one))
    )
    return _ZERO if is_apart else None


def _where(condition: Size, one: Size, other: Size) -> Size | None:
    if condition.known is None:
        return one if one == other else None
    return one if condition.known else other


def _multiply(one: Size, other: Size) -> Size:
    return one * other


SIZE_RULES: Mapping[str, SizeRule] = {
    "Add": _elementwise(_add),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _elementwise(Size.divided_by),
    "Equal": _elementwise(_equal),
    "Gather": _gather,
    "Identity": _same,
    "Mul": _elementwise(_multiply),
    "Reshape": _same,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Squeeze": _same,
    "Sub": _elementwise(_subtract),
    "Unsqueeze": _same,
    "Where": _elementwise(_where),
}
"""By operator of ONNX."""
