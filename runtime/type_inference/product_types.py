"""Types of matrix products, and of sums of products in general."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import DType, Node, Shape, TensorType
from .dims import agree, broadcast, merge, spreads_over
from .operands import integer, operand
from .rules import type_rule
from .shape_content import ShapeContent


def _product(a: Shape, b: Shape) -> Shape | None:
    """Give the shape of a matrix product as numpy's ``matmul`` does; None if there is none."""
    if not a or not b or not agree(a[-1], b[-2] if len(b) > 1 else b[0]):
        return None
    batch = broadcast((a[:-2], b[:-2]))
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    return (*batch, *rows, *columns)


@type_rule("MatMul")
def matrix_product(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(..., M, K) and (..., K, N) make (..., M, N)."""
    a, b = operand(node, 0), operand(node, 1)
    if a is None or b is None or a.dtype is not b.dtype:
        return None
    shape = _product(a.shape, b.shape)
    return None if shape is None else [TensorType(a.dtype, shape)]


@type_rule("MatMulInteger")
def integer_product(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As MatMul; sums are int32."""
    a, b = operand(node, 0), operand(node, 1)
    shape = None if a is None or b is None else _product(a.shape, b.shape)
    return None if shape is None else [TensorType(DType.INT32, shape)]


@type_rule("QLinearMatMul")
def quantized_product(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As MatMul, of the element type of the result's zero point."""
    a, a_zero, b, b_zero = (operand(node, index) for index in (0, 2, 3, 5))
    zero_point = operand(node, 7)
    if a is None or b is None or a_zero is None or b_zero is None or zero_point is None:
        return None
    if a.dtype is not a_zero.dtype or b.dtype is not b_zero.dtype:
        return None
    shape = _product(a.shape, b.shape)
    return None if shape is None else [TensorType(zero_point.dtype, shape)]


@type_rule("Gemm")
def gemm(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(M, K) and (K, N), or their transposes, make (M, N); what is added is spread over it."""
    a, b, added = operand(node, 0), operand(node, 1), operand(node, 2)
    if a is None or b is None or a.dtype is not b.dtype:
        return None
    if len(a.shape) != 2 or len(b.shape) != 2:
        return None
    rows, depth = reversed(a.shape) if integer(node, "transA", 0) else a.shape
    other_depth, columns = reversed(b.shape) if integer(node, "transB", 0) else b.shape
    if not agree(depth, other_depth):
        return None
    if added is not None and not spreads_over(added.shape, (rows, columns)):
        return None
    return [TensorType(a.dtype, (rows, columns))]


@type_rule("Einsum")
def einsum(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """One length for each letter of the result, and those that ``...`` stands for."""
    equation = node.attributes.get("equation")
    operands = [operand(node, index) for index in range(len(node.inputs))]
    given = [found for found in operands if found is not None]
    if not isinstance(equation, str) or len(given) < len(operands) or not given:
        return None
    if any(found.dtype is not given[0].dtype for found in given):
        return None
    shape = _einsum_shape(equation.replace(" ", ""), [found.shape for found in given])
    return None if shape is None else [TensorType(given[0].dtype, shape)]


_OTHERS = "."
"""Stands for ``...`` in the terms of an equation, once they are split."""


def _einsum_shape(equation: str, shapes: Sequence[Shape]) -> Shape | None:
    left, arrow, right = equation.replace("...", _OTHERS).partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        return None
    lengths: dict[str, Shape] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if not _note_term(term, shape, lengths):
            return None
    if not arrow:
        once = sorted(letter for letter in lengths if left.count(letter) == 1)
        right = "".join([_OTHERS, *once]) if _OTHERS in lengths else "".join(once)
        right = right.replace(_OTHERS * 2, _OTHERS)
    if len(set(right)) < len(right) or not lengths.keys() >= set(right):
        return None
    return tuple(dim for letter in right for dim in lengths[letter])


def _note_term(term: str, shape: Shape, lengths: dict[str, Shape]) -> bool:
    """Add what one operand tells of the letters; False if it contradicts the term or the others."""
    place = term.find(_OTHERS)
    count = len(shape) - len(term) + (1 if place >= 0 else 0)
    if term.count(_OTHERS) > 1 or count < 0 or (place < 0 and count):
        return False
    start = 0
    for letter in term:
        width = count if letter == _OTHERS else 1
        part = shape[start : start + width]
        start += width
        if letter == _OTHERS:
            joined = broadcast((lengths.get(letter, ()), part))
        else:
            joined = merge(lengths.get(letter, part), part)
        if joined is None or not (letter == _OTHERS or letter.isalpha()):
            return False
        lengths[letter] = joined
    return True
