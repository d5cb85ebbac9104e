"""MatMul and Gemm, with what is fused behind them."""

from __future__ import annotations

from functools import partial

from ...graph import DType, Node, Value
from ..chain import ACCELERATOR_DOMAIN, ChainStep
from ..operand import Operand
from ..plan_builder import PlanBuilder
from ..product import Matrices, launch_product
from ..walk import broadcast_strides
from .epilogue import epilogue_code
from .registry import kernel


@kernel("MatMul")
@kernel("MatMul", domain=ACCELERATOR_DOMAIN)
def lower_matmul(node: Node, builder: PlanBuilder) -> None:
    """Lower a product of matrices, of vectors, or of batches that broadcast."""
    left, right = _operands(node, builder)
    if len(left.shape) == 1:
        left = left.viewed((1, *left.shape))
    if len(right.shape) == 1:
        right = right.viewed((*right.shape, 1))
    (m, k), n = left.shape[-2:], right.shape[-1]
    made = builder.result(node.outputs[0])
    batches = left.shape[:-2], right.shape[:-2]
    rank = max(map(len, batches))
    wide = [(1,) * (rank - len(batch)) + batch for batch in batches]
    batch = tuple(b if a == 1 else a for a, b in zip(*wide, strict=True))
    steps = [
        tuple(stride * size for stride in broadcast_strides(own, batch))
        for own, size in zip(batches, (m * k, k * n), strict=True)
    ]
    launch_product(
        builder,
        Matrices(left, (k, 1), steps[0]),
        Matrices(right, (n, 1), steps[1]),
        made,
        batch,
        (m, n, k),
        partial(
            epilogue_code, node, builder, made, first=_bias_of(node), operands=_bias(node, builder)
        ),
    )


@kernel("Gemm")
@kernel("Gemm", domain=ACCELERATOR_DOMAIN)
def lower_gemm(node: Node, builder: PlanBuilder) -> None:
    """Lower alpha * A' * B' + beta * C."""
    left, right = _operands(node, builder)
    is_turned = [bool(node.attributes.get(name, 0)) for name in ("transA", "transB")]
    (m, k) = left.shape[::-1] if is_turned[0] else left.shape
    n = right.shape[0 if is_turned[1] else 1]
    made = builder.result(node.outputs[0])
    launch_product(
        builder,
        Matrices(left, (1, m) if is_turned[0] else (k, 1), ()),
        Matrices(right, (1, k) if is_turned[1] else (n, 1), ()),
        made,
        (),
        (m, n, k),
        partial(
            epilogue_code, node, builder, made, first=_scales(node), operands=_bias(node, builder)
        ),
    )


def _operands(node: Node, builder: PlanBuilder) -> tuple[Operand, Operand]:
    left, right = node.inputs[:2]
    assert left is not None
    assert right is not None
    return builder.operand(left), builder.operand(right)


def _bias_value(node: Node) -> Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


def _bias(node: Node, builder: PlanBuilder) -> dict[str, Operand | float]:
    bias = _bias_value(node)
    return {} if bias is None else {"i2": builder.scalar_or_operand(bias)}


def _bias_of(node: Node) -> list[ChainStep]:
    if _bias_value(node) is None:
        return []
    return [ChainStep("Add", ("acc", "i2"), DType.FLOAT32)]


def _scales(node: Node) -> list[ChainStep]:
    """Write alpha, beta and C as steps."""
    alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    steps, result = [], "acc"
    if alpha != 1.0:
        steps.append(ChainStep("Scale", (result,), DType.FLOAT32, (alpha,)))
        result = "s0"
    if _bias_value(node) is not None and beta != 0.0:
        bias = "i2"
        if beta != 1.0:
            bias = f"s{len(steps)}"
            steps.append(ChainStep("Scale", ("i2",), DType.FLOAT32, (beta,)))
        steps.append(ChainStep("Add", (result, bias), DType.FLOAT32))
    return steps
