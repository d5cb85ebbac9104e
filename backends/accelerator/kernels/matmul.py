"""MatMul and Gemm, with what is fused behind them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ....runtime.graph import DType, Node, Value
from ..elementwise.fused_step import ACCELERATOR_DOMAIN, FusedStep
from ..elementwise.operand_walk import broadcast_strides
from ..launching.tiled_matmul import Matrices, launch_matmul
from ..operand import Operand, StridedOperand
from ..plan_builder import PlanBuilder
from .epilogue import epilogue_code
from .registry import kernel

__all__ = ["Factor", "Matmul", "bias_operand", "lower_matmul", "read_matmul"]

_BIAS = 2


@dataclass(frozen=True)
class Factor:
    """One side of a matmul; see ``Matrices``, whose operand is where ``value`` lies."""

    value: Value
    strides: tuple[int, int]
    batch: tuple[int, ...]
    lies: StridedOperand | None = None
    """Where its elements are, if the value is not dense."""

    def operand(self, builder: PlanBuilder) -> Operand:
        """Find where it lies."""
        return builder.operand(self.value) if self.lies is None else self.lies.operand

    def matrices(self, builder: PlanBuilder) -> Matrices:
        """Find where its matrices lie."""
        return Matrices(self.operand(builder), self.strides, self.batch)


@dataclass(frozen=True)
class Matmul:
    """What a MatMul or a Gemm multiplies, ``lengths`` (m, n, k) for each of ``batch``.

    ``steps`` are what it does with the sum itself, before the steps that were fused behind it:
    they begin from ``acc``, and ``i2`` is the node's bias.
    """

    left: Factor
    right: Factor
    batch: tuple[int, ...]
    lengths: tuple[int, int, int]
    steps: tuple[FusedStep, ...]


@kernel("Gemm", "MatMul")
@kernel("Gemm", "MatMul", domain=ACCELERATOR_DOMAIN)
def lower_matmul(node: Node, builder: PlanBuilder) -> None:
    """Lower to one kernel, whatever is fused behind the matmul."""
    matmul = read_matmul(node, builder)
    left, right = (side.matrices(builder) for side in (matmul.left, matmul.right))
    made = builder.result(node.outputs[0])
    bias = bias_operand(node, builder)
    end = partial(epilogue_code, node, builder, made, first=matmul.steps, operands=bias)
    launch_matmul(builder, left, right, made, matmul.batch, matmul.lengths, end)


def read_matmul(node: Node, builder: PlanBuilder) -> Matmul:
    """Read a node of either operator and domain."""
    left, right = node.inputs[:2]
    assert left is not None
    assert right is not None
    if node.op_type == "Gemm":
        return _read_gemm(node, left, right, builder)
    return _read_tensors(node, left, right, builder)


def bias_operand(node: Node, builder: PlanBuilder) -> dict[str, Operand | float]:
    """Return what ``i2`` stands for, if the node has a bias."""
    bias = _bias_value(node)
    return {} if bias is None else {"i2": builder.scalar_or_operand(bias)}


def _read_tensors(node: Node, left: Value, right: Value, builder: PlanBuilder) -> Matmul:
    """Read a matmul of matrices, of vectors, or of batches that broadcast."""
    shapes = [builder.shape(left), builder.shape(right)]
    if len(shapes[0]) == 1:
        shapes[0] = (1, *shapes[0])
    if len(shapes[1]) == 1:
        shapes[1] = (*shapes[1], 1)
    if min(map(len, shapes)) < 2 or shapes[0][-1] != shapes[1][-2]:
        raise builder.contradiction(f"{list(shapes[0])} and {list(shapes[1])} cannot be multiplied")
    (m, k), n = shapes[0][-2:], shapes[1][-1]
    batches = [shape[:-2] for shape in shapes]
    rank = max(map(len, batches))
    wide = [(1,) * (rank - len(batch)) + batch for batch in batches]
    batch = tuple(b if a == 1 else a for a, b in zip(*wide, strict=True))
    steps = [
        tuple(stride * size for stride in broadcast_strides(own, batch))
        for own, size in zip(batches, (m * k, k * n), strict=True)
    ]
    has_bias = _bias_value(node) is not None
    return Matmul(
        _strided_factor(left, batch, builder) or Factor(left, (k, 1), steps[0]),
        _strided_factor(right, batch, builder) or Factor(right, (n, 1), steps[1]),
        batch,
        (m, n, k),
        (FusedStep("Add", ("acc", "i2"), DType.FLOAT32),) if has_bias else (),
    )


def _strided_factor(value: Value, batch: tuple[int, ...], builder: PlanBuilder) -> Factor | None:
    """Read matrices of a value that does not lie dense; None for any other, and for a vector."""
    lies = builder.strided(value)
    if lies is None or len(lies.shape) < 2:
        return None
    *others, row, column = lies.strides
    lengths = zip(lies.shape[:-2], others, batch[len(batch) - len(others) :], strict=True)
    steps = tuple([0 if own != wanted else stride for own, stride, wanted in lengths])
    return Factor(value, (row, column), (0,) * (len(batch) - len(steps)) + steps, lies)


def _read_gemm(node: Node, left: Value, right: Value, builder: PlanBuilder) -> Matmul:
    """Read alpha * A' * B' + beta * C."""
    is_turned = [bool(node.attributes.get(name, 0)) for name in ("transA", "transB")]
    rows, columns = builder.shape(left), builder.shape(right)
    if not len(rows) == len(columns) == 2 or rows[not is_turned[0]] != columns[is_turned[1]]:
        raise builder.contradiction(f"{list(rows)} and {list(columns)} cannot be multiplied")
    (m, k) = rows[::-1] if is_turned[0] else rows
    n = columns[0 if is_turned[1] else 1]
    return Matmul(
        Factor(left, (1, m) if is_turned[0] else (k, 1), ()),
        Factor(right, (1, k) if is_turned[1] else (n, 1), ()),
        (),
        (m, n, k),
        _scales(node),
    )


def _bias_value(node: Node) -> Value | None:
    return node.input_at(_BIAS)


def _scales(node: Node) -> tuple[FusedStep, ...]:
    """Write alpha, beta and C as steps."""
    alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    steps, result = [], "acc"
    if alpha != 1.0:
        steps.append(FusedStep("Scale", (result,), DType.FLOAT32, (alpha,)))
        result = "s0"
    if _bias_value(node) is not None and beta != 0.0:
        bias = "i2"
        if beta != 1.0:
            bias = f"s{len(steps)}"
            steps.append(FusedStep("Scale", ("i2",), DType.FLOAT32, (beta,)))
        steps.append(FusedStep("Add", (result, bias), DType.FLOAT32))
    return tuple(steps)
