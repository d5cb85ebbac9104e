"""Support vector machines: a matmul or distances, the kernel's function, and votes of pairs.

Rows of other types than float32, labels that are texts, linear models and transformed scores are
for numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.graph import DType, Node
from ....runtime.operators.ml.vector_attributes import (
    VectorClassifier,
    VectorKernel,
    VectorRegressor,
    read_classifier,
    read_regressor,
)
from ..onednn.post_ops import PostOp
from ..plans.operand_layout import Layout, Operand
from ..plans.plan_builder import PlanBuilder
from .elementwise.fused_elementwise import emit_elementwise
from .matrices.matmul import matmul
from .numpy_operators import lower_by_numpy, refuses_operator
from .registry import kernel

__all__ = ["lower_vector_classifier", "lower_vector_regressor"]

Array = np.ndarray[Any, Any]

_ML = "ai.onnx.ml"
_ROWS = frozenset({DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64})
_SQUARED_DISTANCE = 0
"""Numbered as in native_matmul.c."""


@kernel("SVMRegressor", domain=_ML, dtypes=_ROWS, refuses=refuses_operator)
def lower_vector_regressor(node: Node, builder: PlanBuilder) -> None:
    """Lower a regression, or one that tells one class from all else, to (rows, 1)."""
    machine, (result,) = read_regressor(**node.attributes), node.outputs
    rows = _rows(node, machine, builder)
    if rows is None or machine.factors is None:
        lower_by_numpy(node, builder)
        return
    found = _kernel_values(machine.kernel, rows, _constant(machine.vectors, builder), builder)
    factors = _constant(machine.factors[:, None], builder)
    sums = builder.temporary(Layout.plain((rows.shape[0], 1), DType.FLOAT32))
    builder.expect_shape(result, sums.shape)
    matmul(builder, found, factors, sums)
    shift = PostOp.unary("linear", 1.0, machine.shift)
    steps = [shift]
    if machine.is_one_class:  # 2 [x > 0] - 1
        steps = [shift, PostOp.binary("greater", 1), PostOp.unary("linear", 2.0, -1.0)]
    reads = [sums, *([builder.constant_operand(np.zeros((1, 1), np.float32))] * (len(steps) > 1))]
    emit_elementwise(builder, reads, builder.result(result, sums.layout), steps)


@kernel("SVMClassifier", domain=_ML, dtypes=_ROWS, refuses=refuses_operator)
def lower_vector_classifier(node: Node, builder: PlanBuilder) -> None:
    """Lower labels and scores: of pairs, of both of two classes, or probabilities."""
    machine = read_classifier(**node.attributes)
    rows = _rows(node, machine, builder)
    is_voting = machine.group_sizes and machine.labels.dtype == np.int64 and machine.count > 1
    if rows is None or not is_voting or len(node.outputs) != 2:
        lower_by_numpy(node, builder)
        return
    found = _kernel_values(machine.kernel, rows, _constant(machine.vectors, builder), builder)
    count, pairs, has_odds = machine.count, len(machine.pairs), machine.odds is not None
    width = count if has_odds or count == 2 else pairs
    label, scores = node.outputs
    builder.expect_shape(label, (rows.shape[0],))
    builder.expect_shape(scores, (rows.shape[0], width))
    room = builder.temporary(Layout.plain((pairs + count * (count + 2),), DType.FLOAT64))
    operands = [
        found,
        _constant(machine.weights, builder),
        builder.constant_operand(np.cumsum(machine.group_sizes).astype(np.int32)),
        _constant(machine.shifts, builder),
        *([] if machine.odds is None else [_constant(machine.odds, builder)]),
        builder.constant_operand(machine.labels),
        room,
        builder.result(label, Layout.plain(builder.shape(label), DType.INT64)),
        builder.result(scores, Layout.plain(builder.shape(scores), DType.FLOAT32)),
    ]
    parameters = (rows.shape[0], len(machine.vectors), count, has_odds)
    builder.native("vote_by_pairs", operands, parameters)


def _rows(
    node: Node, machine: VectorClassifier | VectorRegressor, builder: PlanBuilder
) -> Operand | None:
    """Return x as rows of features; None where numpy is to compute it."""
    (x,) = node.inputs
    assert x is not None
    shape = builder.shape(x)
    is_plain = machine.post_transform == "NONE" and builder.dtype(x) is DType.FLOAT32
    if not is_plain or len(shape) != 2 or 0 in shape or shape[1] != machine.vectors.shape[1]:
        return None
    return builder.plain(x, DType.FLOAT32)


def _kernel_values(
    function: VectorKernel, rows: Operand, vectors: Operand, builder: PlanBuilder
) -> Operand:
    """Emit the function of all rows and vectors, (rows, vectors)."""
    (count, features), (vector_count, _) = rows.shape, vectors.shape
    made = builder.temporary(Layout.plain((count, vector_count), DType.FLOAT32))
    if function.name == "RBF":
        sizes = (_SQUARED_DISTANCE, count, vector_count, features)
        builder.native("pair_distances", (rows, vectors, made), sizes)
        steps = [PostOp.unary("linear", -function.gamma, 0.0), PostOp.unary("exp")]
    else:
        turned = Layout.plain((features, vector_count), DType.FLOAT32, (1, features))
        matmul(builder, rows, vectors.viewed(turned), made)
        steps = _behind_products(function)
    if steps:
        emit_elementwise(builder, [made], made, steps)
    return made


def _behind_products(function: VectorKernel) -> list[PostOp]:
    if function.name == "LINEAR":
        return []
    sums = PostOp.unary("linear", function.gamma, function.constant)
    if function.name == "SIGMOID":
        return [sums, PostOp.unary("tanh")]
    return [sums, PostOp.unary("pow", 1.0, function.degree)]


def _constant(array: Array, builder: PlanBuilder) -> Operand:
    return builder.constant_operand(np.ascontiguousarray(array, np.float32))
