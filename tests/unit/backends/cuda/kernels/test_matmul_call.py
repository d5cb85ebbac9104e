"""How matmuls become one strided batch, and which of their steps a library takes along."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioinfer.backends.accelerator.elementwise.fused_step import FusedStep
from aioinfer.backends.accelerator.elementwise.operand_walk import broadcast_strides
from aioinfer.backends.accelerator.kernels.matmul import Factor, Matmul
from aioinfer.backends.cuda.kernels.library_call import FittedSteps
from aioinfer.backends.cuda.kernels.matmul_call import (
    MatmulShape,
    fit_steps,
    one_batch,
    should_turn,
)
from aioinfer.runtime.graph import DType, Value


def matmul(left: tuple[int, ...], right: tuple[int, ...]) -> Matmul:
    """Make the matmul of two dense tensors, as MatMul reads it."""
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    factors = [
        Factor(
            Value("x"),
            (shape[-1], 1),
            tuple(s * shape[-2] * shape[-1] for s in broadcast_strides(shape[:-2], batch)),
        )
        for shape in (left, right)
    ]
    return Matmul(*factors, tuple(batch), (left[-2], right[-1], left[-1]), ())


def steps(*texts: str, dtype: DType = DType.FLOAT32) -> list[FusedStep]:
    """Write steps like `Add acc i2` or `Gelu s0 ;1`."""
    made = []
    for text in texts:
        names, _, numbers = text.partition(" ;")
        op, *operands = names.split()
        given = tuple(map(float, numbers.split(","))) if numbers else ()
        made.append(FusedStep(op, tuple(operands), dtype, given))
    return made


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        ((3, 5), (5, 4), MatmulShape(1, 3, 4, 5, (5, 1), (4, 1))),
        ((2, 3, 5), (5, 4), MatmulShape(1, 6, 4, 5, (5, 1), (4, 1))),
        ((2, 7, 3, 5), (5, 4), MatmulShape(1, 42, 4, 5, (5, 1), (4, 1))),
        ((2, 7, 3, 5), (1, 1, 5, 4), MatmulShape(1, 42, 4, 5, (5, 1), (4, 1))),
        ((2, 3, 5), (2, 5, 4), MatmulShape(2, 3, 4, 5, (5, 1), (4, 1), 15, 20)),
        ((2, 7, 3, 5), (2, 7, 5, 4), MatmulShape(14, 3, 4, 5, (5, 1), (4, 1), 15, 20)),
        ((3, 5), (2, 5, 4), MatmulShape(2, 3, 4, 5, (5, 1), (4, 1), 0, 20)),
        ((1, 7, 3, 5), (7, 5, 4), MatmulShape(7, 3, 4, 5, (5, 1), (4, 1), 15, 20)),
        ((9, 1, 5), (5, 4), MatmulShape(1, 9, 4, 5, (5, 1), (4, 1))),
        ((2, 7, 3, 5), (7, 5, 4), None),
        ((2, 1, 3, 5), (7, 5, 4), None),
        ((3, 0), (0, 4), None),
        ((0, 3, 5), (5, 4), None),
    ],
)
def test_one_strided_batch(
    left: tuple[int, ...], right: tuple[int, ...], wanted: MatmulShape | None
) -> None:
    assert one_batch(matmul(left, right)) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_a_strided_batch_reads_what_the_matmul_does(seed: int) -> None:
    """Compute from flat memory with the strides that were decided, and compare."""
    chance = np.random.default_rng(seed)
    m, n, k = chance.integers(1, 5, 3)
    batch = chance.integers(1, 4, chance.integers(0, 4))
    shapes = []
    for matrix in ((m, k), (k, n)):
        own = np.where(chance.random(len(batch)) < 0.4, 1, batch)
        shapes.append((*map(int, own[int(chance.integers(0, len(batch) + 1)) :]), *matrix))
    arrays = [chance.normal(size=shape) for shape in shapes]
    wanted = arrays[0] @ arrays[1]
    shape = one_batch(matmul(shapes[0], shapes[1]))
    if shape is None:
        assert len(batch) > 1
        return
    left, right = (
        np.lib.stride_tricks.as_strided(
            array.reshape(-1), lengths, [number * 8 for number in (step, *strides)]
        )
        for array, lengths, step, strides in (
            (arrays[0], (shape.batch, shape.m, shape.k), shape.a_batch_stride, shape.a_strides),
            (arrays[1], (shape.batch, shape.k, shape.n), shape.b_batch_stride, shape.b_strides),
        )
    )
    np.testing.assert_allclose((left @ right).reshape(wanted.shape), wanted)


def test_turned_matrices_keep_their_strides() -> None:
    turned = Matmul(
        Factor(Value("a"), (1, 3), ()), Factor(Value("b"), (1, 5), ()), (), (3, 4, 5), ()
    )
    assert one_batch(turned) == MatmulShape(1, 3, 4, 5, (1, 3), (1, 5))


@pytest.mark.parametrize(
    ("n", "k", "strides", "turns"),
    [
        (30522, 768, (30522, 1), True),
        (30528, 768, (30528, 1), False),
        (30522, 767, (30522, 1), False),
        (30522, 768, (1, 768), False),
    ],
)
def test_a_constant_is_turned_where_its_rows_cannot_be_loaded_in_vectors(
    n: int, k: int, strides: tuple[int, int], turns: bool
) -> None:
    shape = MatmulShape(1, 8, n, k, (k, 1), strides)
    assert should_turn(shape, 2) is turns


FITTED: dict[str, tuple[list[str], FittedSteps]] = {
    "nothing": ([], FittedSteps()),
    "bias": (["Add acc row"], FittedSteps("row")),
    "bias, other order": (["Add row acc"], FittedSteps("row")),
    "bias, residual": (["Add acc row", "Add map s0"], FittedSteps("row", "map")),
    "residual, bias": (["Add acc map", "Sum s0 row"], FittedSteps("row", "map")),
    "bias, relu": (["Add acc row", "Relu s0"], FittedSteps("row", None, "relu")),
    "tanh": (["Gelu acc ;1"], FittedSteps(None, None, "gelu_tanh")),
    "erf stays": (
        ["Add acc row", "Gelu s0 ;0"],
        FittedSteps("row", None, None, tuple(steps("Gelu acc ;0"))),
    ),
    "no activation behind a residual": (
        ["Add acc row", "Add s0 map", "Relu s1"],
        FittedSteps("row", "map", None, tuple(steps("Relu acc"))),
    ),
    "a second bias stays": (
        ["Add acc row", "Add s0 row2", "Relu s1"],
        FittedSteps("row", None, None, tuple(steps("Add acc row2", "Relu s0"))),
    ),
    "what comes behind an activation stays": (
        ["Relu acc", "Add s0 row"],
        FittedSteps(None, None, "relu", tuple(steps("Add acc row"))),
    ),
    "a sum of three stays": (
        ["Sum acc row map"],
        FittedSteps(rest=tuple(steps("Sum acc row map"))),
    ),
    "what is used twice stays": (
        ["Add acc row", "Sigmoid s0", "Mul s0 s1"],
        FittedSteps("row", None, None, tuple(steps("Sigmoid acc", "Mul acc s0"))),
    ),
    "what is used later, too, is not added to": (
        ["Add acc row", "Mul s0 acc"],
        FittedSteps(rest=tuple(steps("Add acc row", "Mul s0 acc"))),
    ),
    "an activation whose result is used twice": (
        ["Relu acc", "Exp s0", "Add s0 s1"],
        FittedSteps(None, None, "relu", tuple(steps("Exp acc", "Add acc s0"))),
    ),
    "steps on something else first": (
        ["Exp map", "Add acc s0"],
        FittedSteps(rest=tuple(steps("Exp map", "Add acc s0"))),
    ),
    "twice the sum": (["Add acc acc"], FittedSteps(rest=tuple(steps("Add acc acc")))),
    "an operand of another shape": (
        ["Add acc column"],
        FittedSteps(rest=tuple(steps("Add acc column"))),
    ),
}


@pytest.mark.parametrize("name", FITTED)
def test_steps_are_divided(name: str) -> None:
    texts, wanted = FITTED[name]
    assert fit_steps(steps(*texts), {"row", "row2"}, {"map"}) == wanted


def test_what_is_a_row_and_a_map_is_each_once() -> None:
    both: Any = {"x", "y"}
    assert fit_steps(steps("Add acc x", "Add s0 y"), both, both) == FittedSteps("x", "y")
