"""Operators that multiply matrices or move windows: convolutions, pools, matmuls, recurrences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph import Node
from .elementwise_rules import broadcast
from .size import ONE
from .traced_value import (
    NotApartError,
    Rule,
    Traced,
    given,
    in_rows,
    integer,
    leading_rows,
    need_free,
    result_dims,
)

__all__ = ["MATMUL_RULES"]

Inputs = Sequence[Traced | None]

_WITHIN = "it sums over the rows"


def _windows(node: Node, inputs: Inputs) -> Traced:
    """Follow convolutions and pools, by weights that serve all rows."""
    x = leading_rows(inputs)
    need_free(inputs)
    return Traced(result_dims(node.outputs[0], x.rank, {0: x.rows}), 0)


def _global_pool(node: Node, inputs: Inputs) -> Traced:
    x = leading_rows(inputs)
    return Traced((*x.shape[:2], *[ONE] * (x.rank - 2)), 0)


def _matmul(node: Node, inputs: Inputs) -> Traced:
    left, right = inputs[0], inputs[1]
    assert left is not None
    assert right is not None
    if left.axis is not None and right.rank == 1:
        if left.axis == left.rank - 1:
            raise NotApartError(_WITHIN)
        need_free(inputs, 1)
        return Traced(left.shape[:-1], left.axis)
    if min(left.rank, right.rank) < 2:
        raise NotApartError("one of its inputs is a vector")
    rank = max(left.rank, right.rank)
    result = {rank - 2: left.shape[-2], rank - 1: right.shape[-1]}
    for index, operand, outer, summed in ((0, left, -2, -1), (1, right, -1, -2)):
        if operand.axis == operand.rank + summed:
            raise NotApartError(_WITHIN)
        if operand.axis == operand.rank + outer:
            need_free(inputs, 1 - index)
            return Traced(result_dims(node.outputs[0], rank, result), rank + outer)
    stacks = [_stack(operand) for operand in (left, right)]
    made = broadcast(node, stacks)
    known = dict(enumerate(made.shape[:-2])) | result
    return Traced(result_dims(node.outputs[0], rank, known), made.axis)


def _stack(operand: Traced) -> Traced:
    """See a stack of matrices as if each were one element."""
    return Traced((*operand.shape[:-2], ONE, ONE), operand.axis)


def _gemm(node: Node, inputs: Inputs) -> Traced:
    a = leading_rows(inputs)
    if integer(node, "transA", 0):
        raise NotApartError(_WITHIN)
    need_free(inputs, 1)
    weights = inputs[1]
    assert weights is not None
    width = weights.shape[0 if integer(node, "transB", 0) else 1]
    result = Traced((a.rows, width), 0)
    bias = given(inputs, 2)
    return result if bias is None else broadcast(node, [result, bias])


def _recurrent(node: Node, inputs: Inputs) -> list[Traced]:
    if integer(node, "layout", 0):
        raise NotApartError("its layout is 1")
    x = in_rows(inputs)
    need_free(inputs, 1, 2, 3, 7)
    wanted = ((0, 1), (4, 0), (5, 1), (6, 1))
    for index, axis in wanted:
        found = given(inputs, index)
        if found is not None and (found.axis, found.shape[axis]) != (axis, x.rows):
            raise NotApartError(f"the rows of its input {index} are not along axis {axis}")
    ranks = (4, 3, 3)
    return [
        Traced(result_dims(value, rank, {rank - 2: x.rows}), rank - 2)
        for value, rank in zip(node.outputs, ranks, strict=False)
    ]


def _attention(node: Node, inputs: Inputs) -> Traced:
    query, key, value = (leading_rows(inputs, index) for index in range(3))
    mask = given(inputs, 3)
    if any(item is not None for item in inputs[4:]):
        raise NotApartError("it has inputs beyond a mask")
    if len({query.rows, key.rows, value.rows}) != 1:
        raise NotApartError("its query, key and value have different lengths")
    if mask is not None:
        broadcast(node, [Traced((query.rows, ONE, ONE, ONE), 0), mask])
    return Traced(result_dims(node.outputs[0], query.rank, {0: query.rows}), 0)


_WINDOWS = ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool")
_GLOBAL_POOLS = ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")

MATMUL_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_WINDOWS, _windows),
    **dict.fromkeys(_GLOBAL_POOLS, _global_pool),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "Attention": _attention,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
"""By operator of ONNX."""
