"""Types of matmuls, and of sums of products in general."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import Dim, DType, Node, Shape, TensorType, shape_text
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..dims import agree, broadcast, merge
from ..operands import (
    EIGHT_BITS,
    integer,
    operand,
    require_rank,
    require_same_type,
    require_spread,
    require_type,
)
from ..rules import type_rule


def _matmul_shape(a: Shape, b: Shape) -> Shape:
    """Return the shape of a matmul as numpy's ``matmul`` does."""
    if not a or not b or not agree(a[-1], b[-2] if len(b) > 1 else b[0]):
        raise ContradictionError(
            f"{shape_text(a)} and {shape_text(b)} are no two matrices to multiply: the last length "
            f"of the one and the rows of the other have to be the same"
        )
    batch = broadcast((a[:-2], b[:-2]))
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    return (*batch, *rows, *columns)


@type_rule("MatMul")
def matmul(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(..., M, K) and (..., K, N) make (..., M, N)."""
    a, b = operand(node, 0), operand(node, 1)
    if a is None or b is None:
        return None
    require_same_type("factors", a, b)
    return [TensorType(a.dtype, _matmul_shape(a.shape, b.shape))]


def _require_zero_point(node: Node, index: int, of: int) -> None:
    """Raise unless a zero point is one number, or a vector, of the type of what it is for."""
    x, zero = operand(node, of), operand(node, index)
    if x is not None and zero is not None:
        require_same_type("a factor and its zero point", x, zero)


def _require_one_or_each(what: str, node: Node, index: int, length: Dim) -> None:
    """Raise unless an input is one number, or one for each row or column."""
    given = operand(node, index)
    if given is None or len(given.shape) != 1 or given.shape[0] == 1:
        return
    if not agree(given.shape[0], length):
        raise ContradictionError(
            f"{what} has {given.shape[0]} numbers, and 1 or {length} are wanted"
        )


@type_rule("MatMulInteger")
def integer_matmul(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As MatMul; sums are int32."""
    a, b = operand(node, 0), operand(node, 1)
    if a is None or b is None:
        return None
    require_type("numbers of the first factor", a, EIGHT_BITS)
    require_type("numbers of the second factor", b, EIGHT_BITS)
    shape = _matmul_shape(a.shape, b.shape)
    _require_zero_point(node, 2, 0)
    _require_zero_point(node, 3, 1)
    _require_one_or_each("the zero point of the rows", node, 2, a.shape[-2] if a.shape[1:] else 1)
    _require_one_or_each("the zero point of the columns", node, 3, b.shape[-1])
    return [TensorType(DType.INT32, shape)]


@type_rule("QLinearMatMul")
def quantized_matmul(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As MatMul, of the element type of the result's zero point."""
    a, b, zero_point = operand(node, 0), operand(node, 3), operand(node, 7)
    if a is None or b is None or zero_point is None:
        return None
    shape = _matmul_shape(a.shape, b.shape)
    _require_zero_point(node, 2, 0)
    _require_zero_point(node, 5, 3)
    rows, columns = a.shape[-2] if a.shape[1:] else 1, b.shape[-1]
    for index in (1, 2, 6, 7):
        _require_one_or_each("a scale or zero point of the rows", node, index, rows)
    for index in (4, 5):
        _require_one_or_each("a scale or zero point of the columns", node, index, columns)
    return [TensorType(zero_point.dtype, shape)]


@type_rule("Gemm")
def gemm(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(M, K) and (K, N), or their transposes, make (M, N); what is added is spread over it."""
    a, b, added = operand(node, 0), operand(node, 1), operand(node, 2)
    if a is None or b is None:
        return None
    require_same_type("factors", a, b)
    require_rank("the first factor", a, 2)
    require_rank("the second factor", b, 2)
    rows, depth = reversed(a.shape) if integer(node, "transA", 0) else a.shape
    other_depth, columns = reversed(b.shape) if integer(node, "transB", 0) else b.shape
    if not agree(depth, other_depth):
        raise ContradictionError(f"its factors have {depth} columns and {other_depth} rows")
    if added is not None:
        require_same_type("product and what is added", a, added)
        require_spread("what is added", added, (rows, columns))
    return [TensorType(a.dtype, (rows, columns))]


@type_rule("Einsum")
def einsum(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """One length for each letter of the result, and those that ``...`` stands for."""
    equation = node.attributes.get("equation")
    operands = [operand(node, index) for index in range(len(node.inputs))]
    given = [found for found in operands if found is not None]
    if not isinstance(equation, str) or len(given) < len(operands) or not given:
        return None
    for found in given:
        require_same_type("its inputs", given[0], found)
    shape = _einsum_shape(equation.replace(" ", ""), [found.shape for found in given])
    return None if shape is None else [TensorType(given[0].dtype, shape)]


_OTHERS = "."
"""Stands for ``...`` in the terms of an equation, once they are split."""


def _einsum_shape(equation: str, shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape of the result; None where an axis of length 1 is to be repeated."""
    left, arrow, right = equation.replace("...", _OTHERS).partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ContradictionError(f"{equation!r} is about {len(terms)} inputs, not {len(shapes)}")
    lengths: dict[str, Shape] = {}
    for term, shape in zip(terms, shapes, strict=True):
        if not _note_term(term, shape, lengths):
            return None
    if not arrow:
        once = sorted(letter for letter in lengths if left.count(letter) == 1)
        right = "".join([_OTHERS, *once]) if _OTHERS in lengths else "".join(once)
        right = right.replace(_OTHERS * 2, _OTHERS)
    if len(set(right)) < len(right) or not lengths.keys() >= set(right):
        raise ContradictionError(f"the result of {equation!r} names an axis twice, or one of none")
    return tuple(dim for letter in right for dim in lengths[letter])


def _note_term(term: str, shape: Shape, lengths: dict[str, Shape]) -> bool:
    """Add what one operand tells of the letters; False if one of length 1 meets another length."""
    place = term.find(_OTHERS)
    count = len(shape) - len(term) + (1 if place >= 0 else 0)
    if term.count(_OTHERS) > 1 or count < 0 or (place < 0 and count):
        text = term.replace(_OTHERS, "...")
        raise ContradictionError(f"{text!r} does not name the axes of {shape_text(shape)}")
    start = 0
    for letter in term:
        width = count if letter == _OTHERS else 1
        part = shape[start : start + width]
        start += width
        if letter == _OTHERS:
            lengths[letter] = broadcast((lengths.get(letter, ()), part))
        elif not letter.isalpha():
            raise ContradictionError(f"{letter!r} in its equation is no letter")
        else:
            known = lengths.get(letter, part)
            if known != part and (1,) in (known, part):
                return False
            lengths[letter] = merge(known, part)
    return True
