"""MatMul and Gemm by cuBLASLt, with what it takes of the steps behind them, or by cuBLAS.

What remains of the steps is a fused group of its own, in place. A matmul that is no single strided
batch, or that has neither library, is computed by the kernel of all accelerators.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from ....runtime.graph import Node
from ...accelerator.elementwise.fused_step import ACCELERATOR_DOMAIN, joined_steps, parse_steps
from ...accelerator.kernels import matmul as shared
from ...accelerator.kernels.epilogue import extra_operands
from ...accelerator.kernels.matmul import Factor
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from .library_call import WORKSPACE_BYTES, FittedSteps, call_library, has_tf32, launch_rest
from .matmul_call import MatmulShape, fit_steps, one_batch, should_turn
from .registry import kernel


@kernel("Gemm", "MatMul")
@kernel("Gemm", "MatMul", domain=ACCELERATOR_DOMAIN)
def lower_matmul(node: Node, builder: PlanBuilder) -> None:
    """Lower to a library's matmul and a fused group, as far as both are needed."""
    library = next((name for name in ("cublaslt", "cublas") if builder.has_library(name)), None)
    matmul = shared.read_matmul(node, builder)
    shape = one_batch(matmul)
    values = (matmul.left.value, matmul.right.value, node.outputs[0])
    dtypes = {builder.held_dtype(value) for value in values}
    if library is None or shape is None or len(dtypes) > 1:
        shared.lower_matmul(node, builder)
        return
    left = matmul.left.operand(builder)
    right, shape = _right(matmul.right, shape, builder)
    made = builder.result(node.outputs[0])
    operands = {**shared.bias_operand(node, builder), **extra_operands(node, builder)}
    steps = joined_steps(matmul.steps, parse_steps(node))
    fitted = FittedSteps(rest=tuple(steps))
    if library == "cublaslt":
        fitted = fit_steps(steps, _rows(operands, shape.n, made), _maps(operands, made))
    _call(builder, library, shape, fitted, (left, right), operands, made)
    if fitted.rest:
        launch_rest(builder, fitted.rest, operands, made)


def _call(
    builder: PlanBuilder,
    library: str,
    shape: MatmulShape,
    fitted: FittedSteps,
    factors: tuple[Operand, Operand],
    operands: Mapping[str, Operand | float],
    made: Operand,
) -> None:
    taken = [operands[name] for name in (fitted.bias, fitted.residual) if name is not None]
    call_library(
        builder,
        library,
        "matmul",
        [*factors, *taken],
        made,
        workspace_bytes=WORKSPACE_BYTES if library == "cublaslt" else 0,
        **asdict(shape),
        has_bias=fitted.bias is not None,
        has_residual=fitted.residual is not None,
        activation=fitted.activation,
        has_tf32=has_tf32(builder, made),
    )


def _right(factor: Factor, shape: MatmulShape, builder: PlanBuilder) -> tuple[Operand, MatmulShape]:
    """Find the second matrix; a constant one may be stored column by column, once for all plans."""
    value = factor.value
    array, dtype = value.constant, builder.held_dtype(value)
    if array is None or array.ndim != 2 or not should_turn(shape, dtype.item_bytes):
        return factor.operand(builder), shape
    known, turned = array, (shape.n, shape.k)
    operand = builder.derived("transpose", [known], dtype, lambda: known.T, turned)
    return operand, replace(shape, b_strides=(1, shape.k))


def _rows(operands: Mapping[str, Operand | float], n: int, made: Operand) -> set[str]:
    """Name what can be a bias: a number for each column of the result."""
    return {
        name
        for name, item in operands.items()
        if isinstance(item, Operand)
        and item.dtype is made.dtype
        and item.count == n
        and (n == 1 or item.shape[-1] == n)
    }


def _maps(operands: Mapping[str, Operand | float], made: Operand) -> set[str]:
    """Name what can be a residual: an element for each of the result's."""
    return {
        name
        for name, item in operands.items()
        if isinstance(item, Operand) and item.dtype is made.dtype and item.count == made.count
    }
