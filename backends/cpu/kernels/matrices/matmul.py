"""MatMul and Gemm: matmuls, many at once or one, with what is fused into them.

A matmul with one matrix on the right is two-dimensional, whatever the rank on the left. Its rows
are read as they lie, and constant weights are packed into what oneDNN likes best, which does not
depend on the number of rows: plans of all lengths share them. Other matmuls stay batches; an axis
of length 1 is broadcast by oneDNN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .....runtime.graph import DType, Node, TensorType, Value
from .....runtime.type_inference.dims import broadcast_lengths
from ...onednn.bindings import ARG, MAX_RANK, Attributes, Desc, PrimitiveDesc
from ...onednn.post_ops import CPU_DOMAIN, PostOp, parse_post_ops
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...plans.view_strides import reshaped_strides
from ..registry import kernel
from .epilogue import Epilogue
from .gap_free import gap_free
from .inner_product import INNER_PRODUCT, inner_product, row_desc
from .small_matmul import is_small, lower_small_matmul
from .thin_matmul import emit_thin_matmul, thin_matmul

__all__ = ["as_matrices", "constant_matmul", "matmul"]

Array = np.ndarray[Any, Any]
Dims = tuple[int, ...]


class _Sides(NamedTuple):
    """The lengths that oneDNN sees; the last two are rows and inner, inner and columns, both outer.

    ``inserted`` are axes of ``result`` that the value itself does not have.
    """

    left: Dims
    right: Dims
    result: Dims
    inserted: tuple[int, ...] = ()


def _refuse_rank(node: Node) -> str | None:
    for value in node.inputs[:2]:
        kind = None if value is None else value.type
        if isinstance(kind, TensorType) and kind.shape is not None and len(kind.shape) > MAX_RANK:
            return f"{node.op} on CPU takes at most {MAX_RANK} axes, not {len(kind.shape)}"
    return None


@kernel("MatMul", refuses=_refuse_rank)
@kernel("MatMul", domain=CPU_DOMAIN, refuses=_refuse_rank)
def lower_matmul(node: Node, builder: PlanBuilder) -> None:
    """Lower a matmul of any ranks, with a bias along the last axis and post-ops where fused."""
    left, right = node.inputs[0], node.inputs[1]
    assert left is not None
    assert right is not None
    bias = node.input_at(2)
    shapes = builder.shape(left), builder.shape(right)
    if () in shapes or shapes[0][-1] != shapes[1][-2:][0]:
        raise builder.contradiction(f"there is no matmul of {shapes[0]} and {shapes[1]}")
    try:
        sides = _sides(*shapes)
    except ValueError as error:
        raise builder.contradiction(str(error)) from error
    _lower(node, builder, sides, bias, parse_post_ops(node.attributes))


@kernel("Gemm")
@kernel("Gemm", domain=CPU_DOMAIN)
def lower_gemm(node: Node, builder: PlanBuilder) -> None:
    """Lower alpha * A' * B' + beta * C, and post-ops where fused."""
    left, right = node.inputs[0], node.inputs[1]
    assert left is not None
    assert right is not None
    is_turned = [bool(node.attributes.get(name, 0)) for name in ("transA", "transB")]
    shapes = builder.shape(left), builder.shape(right)
    if {len(shape) for shape in shapes} != {2}:
        raise builder.contradiction(f"there is no matmul of {shapes[0]} and {shapes[1]}")
    rows, inner = _turned(shapes[0], is_turned[0])
    found, columns = _turned(shapes[1], is_turned[1])
    if found != inner:
        raise builder.contradiction(f"there is no matmul of {shapes[0]} and {shapes[1]}")
    sides = _Sides((rows, inner), (inner, columns), (rows, columns))
    bias = node.input_at(2)
    bias, post_ops = _gemm_post_ops(node, builder, bias, columns)
    _lower(node, builder, sides, bias, post_ops, is_turned)


def _gemm_post_ops(
    node: Node, builder: PlanBuilder, bias: Value | None, columns: int
) -> tuple[Value | None, Sequence[PostOp]]:
    """Return the bias that the primitive takes, and alpha, beta and any other C as post-ops."""
    alpha = float(node.attributes.get("alpha", 1.0))
    beta = float(node.attributes.get("beta", 1.0))
    rest = parse_post_ops(node.attributes)
    if bias is None or beta == 0.0:
        return None, (*_times(alpha), *rest)
    shape = builder.shape(bias)
    is_row = math.prod(shape) == columns and shape[-1:] == (columns,)
    if alpha == beta == 1.0 and is_row:
        return bias, rest
    # beta * (alpha / beta * matmul + C): oneDNN adds operands, but does not scale them.
    added = (*_times(alpha / beta), PostOp.binary("add", 2), *_times(beta))
    return None, (*added, *rest)


def _times(factor: float) -> tuple[PostOp, ...]:
    return () if factor == 1.0 else (PostOp.unary("linear", factor, 0.0),)


def _factor(post_ops: Sequence[PostOp]) -> float | None:
    """Return the factor that is all that post-ops do; None if they do anything else."""
    if not post_ops:
        return 1.0
    (first, *others) = post_ops
    is_scaling = first.name == "linear" and first.beta == 0.0 and not others
    return first.alpha if is_scaling else None


def _lower(
    node: Node,
    builder: PlanBuilder,
    sides: _Sides,
    bias: Value | None,
    post_ops: Sequence[PostOp],
    is_turned: Sequence[bool] = (False, False),
) -> None:
    left, right = node.inputs[0], node.inputs[1]
    assert left is not None
    assert right is not None
    (result,) = node.outputs
    held = builder.held_dtype(result)
    builder.expect_count(result, math.prod(sides.result))
    if 0 in sides.result:
        builder.result(result, Layout.plain(builder.shape(result), held))
        return
    lengths = (sides.left, sides.right, sides.result)
    if right.constant is not None and 0 not in sides.left and is_small(lengths, held, post_ops):
        a = _matrices(builder, left, sides.left, held, is_turned[0])
        weights = _lying_as(builder, right.constant, sides.right, is_turned[1])
        is_row = bias is None or math.prod(builder.shape(bias)) == sides.right[1]
        if a.layout.is_row_major and weights.dtype == np.float32 and is_row:
            lower_small_matmul(builder, result, a, weights, bias, post_ops)
            return
    factor = _factor(post_ops)
    if bias is None and factor is not None and right.constant is None and sides.left[-1]:
        a = _matrices(builder, left, sides.left, held, is_turned[0])
        b = _matrices(builder, right, sides.right, held, is_turned[1])
        thin = thin_matmul(a.layout, b.layout, Layout.plain(sides.result, held))
        if thin is not None:
            made = builder.result(result, Layout.plain(builder.shape(result), held))
            emit_thin_matmul(builder, thin, (a, b, made), factor)
            return
    epilogue = Epilogue(node, builder, lambda dims: _fit(dims, sides), post_ops)
    if sides.left[-1] == 0:  # an empty sum: zeros, and what is added to them
        a = _zeros(builder, (*sides.left[:-1], 1), held)
        b = _zeros(builder, (*sides.right[:-2], 1, sides.right[-1]), held)
        pd = _primitive(builder, sides, a, b.layout.desc(builder.engine), bias, epilogue)
    else:
        a = _matrices(builder, left, sides.left, held, is_turned[0])
        if right.constant is not None:
            weights = right.constant
            pd, b = _with_weights(builder, sides, a, weights, is_turned[1], bias, epilogue)
        else:
            b = _matrices(builder, right, sides.right, held, is_turned[1])
            a, b = gap_free(builder, a, b, Layout.plain(sides.result, held))
            pd = _primitive(builder, sides, a, b.layout.desc(builder.engine), bias, epilogue)
    reads = {ARG.SRC: a, ARG.WEIGHTS: b, **epilogue.arguments(pd)}
    if bias is not None:
        rank = 1 if pd.call == INNER_PRODUCT else len(sides.result)
        reads[ARG.BIAS] = builder.reordered(bias, row_desc(builder.engine, rank, sides.result[-1]))
    made = epilogue.result(result, pd).viewed(Layout.of(pd.desc("dst")))
    builder.primitive(pd, reads, {ARG.DST: made})


def _with_weights(
    builder: PlanBuilder,
    sides: _Sides,
    left: Operand,
    weights: Array,
    is_turned: bool,
    bias: Value | None,
    epilogue: Epilogue,
) -> tuple[PrimitiveDesc, Operand]:
    """Describe a matmul with a constant on the right, and pack that as it likes best."""
    engine = builder.engine
    if len(sides.result) == 2:
        inner, columns = sides.right
        pd = inner_product(
            engine, left.layout.desc(engine), columns, bias is not None, epilogue.attributes
        )
        if pd is not None:
            turned = (columns, inner), not is_turned
            return pd, _packed(builder, weights, *turned, pd.desc("weights"))
    pd = _primitive(builder, sides, left, engine.any_desc(sides.right, left.dtype), bias, epilogue)
    return pd, _packed(builder, weights, sides.right, is_turned, pd.desc("weights"))


def _primitive(
    builder: PlanBuilder,
    sides: _Sides,
    left: Operand,
    right: Desc,
    bias: Value | None,
    epilogue: Epilogue,
) -> PrimitiveDesc:
    engine = builder.engine
    return engine.primitive_desc(
        "matmul",
        engine,
        left.layout.desc(engine),
        right,
        None if bias is None else row_desc(engine, len(sides.result), sides.result[-1]),
        engine.desc(sides.result, left.dtype),
        epilogue.attributes,
    )


def matmul(builder: PlanBuilder, left: Operand, right: Operand, target: Operand) -> None:
    """Emit a matmul of batches of matrices into a place; all have the same rank."""
    thin = thin_matmul(left.layout, right.layout, target.layout)
    if thin is not None:
        emit_thin_matmul(builder, thin, (left, right, target))
        return
    left, right = gap_free(builder, left, right, target.layout)
    engine = builder.engine
    pd = engine.primitive_desc(
        "matmul",
        engine,
        left.layout.desc(engine),
        right.layout.desc(engine),
        None,
        target.layout.desc(engine),
        Attributes(engine),
    )
    builder.primitive(pd, {ARG.SRC: left, ARG.WEIGHTS: right}, {ARG.DST: target})


def constant_matmul(builder: PlanBuilder, left: Operand, weights: Array, target: Operand) -> None:
    """Emit left (rows, inner) times weights (inner, columns) into a place, all row by row."""
    engine = builder.engine
    pd = inner_product(
        engine, left.layout.desc(engine), weights.shape[1], False, Attributes(engine)
    )
    if pd is not None:
        b = _packed(builder, weights, weights.shape[::-1], True, pd.desc("weights"))
    else:
        any_weights = engine.any_desc(weights.shape, left.dtype)
        pd = engine.primitive_desc(
            "matmul",
            engine,
            left.layout.desc(engine),
            any_weights,
            None,
            target.layout.desc(engine),
            Attributes(engine),
        )
        b = _packed(builder, weights, weights.shape, False, pd.desc("weights"))
    builder.primitive(pd, {ARG.SRC: left, ARG.WEIGHTS: b}, {ARG.DST: target})


def _sides(left: Dims, right: Dims) -> _Sides:
    """Choose the lengths for two shapes of MatMul; a vector becomes a matrix."""
    wide_left = (1, *left) if len(left) == 1 else left
    wide_right = (*right, 1) if len(right) == 1 else right
    batch = broadcast_lengths((wide_left[:-2], wide_right[:-2]))
    rows, inner, columns = wide_left[-2], wide_left[-1], wide_right[-1]
    rank = len(batch) + 2
    inserted = []
    if len(left) == 1:
        inserted.append(rank - 2)
    if len(right) == 1:
        inserted.append(rank - 1)
    if math.prod(wide_right[:-2]) == 1 and not inserted:
        count = math.prod(batch) * rows
        return _Sides((count, inner), (inner, columns), (count, columns))
    return _Sides(
        (1,) * (rank - len(wide_left)) + wide_left,
        (1,) * (rank - len(wide_right)) + wide_right,
        (*batch, rows, columns),
        tuple(inserted),
    )


def _fit(dims: Dims, sides: _Sides) -> Dims:
    """View an operand of a post-op as the primitive broadcasts it; else it is repeated.

    oneDNN is fast with one element, one row for all, and the result's own lengths.
    """
    if math.prod(dims) == 1:
        return (1,) * len(sides.result)
    row = (1,) * (len(sides.result) - 1) + sides.result[-1:]
    has_columns = len(sides.result) - 1 not in sides.inserted
    if has_columns and dims[-1] == row[-1] == math.prod(dims):
        return row
    return sides.result


def _turned(shape: Dims, is_turned: bool) -> tuple[int, int]:
    first, second = shape
    return (second, first) if is_turned else (first, second)


def _zeros(builder: PlanBuilder, dims: Dims, dtype: DType) -> Operand:
    return builder.constant_operand(np.zeros(dims, dtype.numpy))


def _lying_as(builder: PlanBuilder, array: Array, dims: Dims, is_turned: bool) -> Array:
    """Return a constant as a row-major matrix, once for all plans."""
    if not is_turned and array.flags.c_contiguous and array.shape == dims:
        return array
    turned = array.T if is_turned else array.reshape(dims)
    operation = f"matrix {dims}{' turned' if is_turned else ''}"
    return builder.derived(operation, [array], lambda: np.ascontiguousarray(turned))


def _packed(builder: PlanBuilder, array: Array, dims: Dims, is_turned: bool, desc: Desc) -> Operand:
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    strides = (1, dims[-2]) if is_turned else None
    return builder.packed(array, builder.engine.desc(dims, DType.of(array.dtype), strides), desc)


def _matrices(
    builder: PlanBuilder, value: Value, dims: Dims, dtype: DType, is_turned: bool = False
) -> Operand:
    """View a value as matrices that oneDNN multiplies fast, as it lies if that can be."""
    lying = (*dims[:-2], dims[-1], dims[-2]) if is_turned else dims
    operand = builder.operand(value)
    found = as_matrices(operand, lying) if operand.dtype is dtype else None
    if found is None:
        plain = builder.plain(value, dtype)
        found = plain.viewed(Layout.plain(lying, dtype))
    if not is_turned:
        return found
    strides = found.layout.strides
    assert strides is not None
    turned = (*strides[:-2], strides[-1], strides[-2])
    return found.viewed(Layout.plain(dims, dtype, turned))


def as_matrices(operand: Operand, dims: Dims) -> Operand | None:
    """View an operand as matrices with rows or columns in one piece; None if it lies otherwise."""
    layout = operand.layout
    if layout.strides is None:
        return None
    if any(dim > 1 and not step for dim, step in zip(layout.shape, layout.strides, strict=True)):
        return None  # oneDNN is slow with elements that are repeated by a stride of 0
    strides = reshaped_strides(layout.shape, layout.strides, dims)
    if strides is None:
        return None
    (rows, columns), (down, across) = dims[-2:], strides[-2:]
    is_lying = (across == 1 or columns == 1) and (down >= columns or rows == 1)
    is_standing = (down == 1 or rows == 1) and (across >= rows or columns == 1)
    if not is_lying and not is_standing:
        return None
    matrices = Layout.plain(dims, operand.dtype, _tidied(dims, strides))
    return operand.viewed(matrices) if matrices.has_desc else None


def _tidied(dims: Dims, strides: Dims) -> Dims:
    """Return axes of length 1 the stride that they would have in the order of the others."""
    rows, columns = dims[-2:]
    down, across = strides[-2:]
    if columns == 1:
        down, across = (1 if rows == 1 else down), 1
    elif rows == 1:
        down = columns if across == 1 else 1
    return (*strides[:-2], down, across)
