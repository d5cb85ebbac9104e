"""Elementwise kernels that move words: for each type and way of broadcasting, what REFERENCE gives.

Numbers are computed on OpenCL, by the text that a GPU gets.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from aioinfer import Core
from unit.backends.comparing import assert_same_on, model_of, operator
from unit.backends.cuda.kernels.plans import plan_of

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64)
SHAPES = {
    "like": (3, 4, 16),
    "row": (16,),
    "rows": (4, 16),
    "column": (4, 1),
    "planes": (3, 1, 16),
    "number": (1,),
}
ODD_SHAPES = {"like": (3, 4, 6), "row": (6,), "rows": (4, 6), "column": (4, 1), "planes": (3, 1, 6)}
UNEVEN_SHAPES = {"like": (3, 5, 7), "row": (7,), "column": (5, 1)}


def drawn(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    chance = np.random.default_rng(len(shape) + shape[-1])
    numbers = chance.integers(0, 2 if dtype == np.bool_ else 50, shape)
    return numbers.astype(dtype)


@pytest.mark.parametrize("shapes", [SHAPES, ODD_SHAPES, UNEVEN_SHAPES])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, np.bool_], ids=lambda dtype: dtype.__name__)
def test_every_type_and_broadcast_is_right(
    dtype: Any, shapes: dict[str, tuple[int, ...]], stand_in_core: Core
) -> None:
    op = "Xor" if dtype == np.bool_ else "Add"
    inputs = {name: drawn(dtype, shape) for name, shape in shapes.items()}
    inputs["x"] = drawn(dtype, shapes["like"])[::-1].copy()
    nodes = [operator(op, "x", name, outputs=[f"y_{name}"]) for name in shapes]
    model = model_of(nodes, inputs, [f"y_{name}" for name in shapes])
    assert_same_on("STANDIN", stand_in_core, model, inputs, bound=0.0)


def test_operands_of_several_widths_meet_in_one_kernel(stand_in_core: Core) -> None:
    shape = (4, 24)
    inputs = {
        "which": drawn(np.bool_, shape),
        "a": drawn(np.float32, shape[1:]),
        "b": drawn(np.float16, shape),
        "n": drawn(np.int64, shape),
    }
    nodes = [
        operator("Cast", "b", outputs=["wide"], to=1),
        operator("Cast", "n", outputs=["number"], to=1),
        operator("Where", "which", "a", "wide", outputs=["chosen"]),
        operator("Add", "chosen", "number", outputs=["y"]),
        operator("Greater", "y", "wide", outputs=["z"]),
    ]
    assert_same_on("STANDIN", stand_in_core, model_of(nodes, inputs, ["y", "z"]), inputs, bound=0.0)


def test_what_is_empty_is_cast_by_no_kernel(stand_in_core: Core) -> None:
    inputs = {"x": np.zeros((0, 8), np.float32)}
    nodes = [operator("Cast", "x", outputs=["half"], to=10), operator("Neg", "half")]
    assert_same_on("STANDIN", stand_in_core, model_of(nodes, inputs), inputs)


@pytest.mark.parametrize(
    ("dtype", "shape", "blocks", "group"),
    [
        (np.float32, (64, 128, 3072), 64 * 128 * 3072 // 4, 256),
        (np.float16, (64, 128, 3072), 64 * 128 * 3072 // 8, 256),
        (np.int64, (3, 10), 15, 64),
        (np.float16, (3, 5), 15, 64),
        (np.float16, (128, 768), 128 * 768 // 8, 64),
    ],
)
def test_a_work_item_takes_sixteen_bytes_and_few_of_them_are_spread(
    dtype: Any, shape: tuple[int, ...], blocks: int, group: int
) -> None:
    inputs = {"x": np.zeros(shape, dtype)}
    plan = plan_of(model_of([operator("Neg", "x")], inputs), inputs)
    (launch,) = plan.launches
    assert launch.local_size == (group,)
    assert launch.global_size == (-(-blocks // group) * group,)


def test_a_gelu_behind_a_bias_is_one_kernel_that_moves_words(stand_in_core: Core) -> None:
    inputs = {"x": np.linspace(-4, 4, 2 * 48, dtype=np.float32).reshape(2, 48)}
    bias = np.linspace(0, 1, 48, dtype=np.float32)
    nodes = [operator("Add", "x", "bias", outputs=["sum"]), operator("Gelu", "sum")]
    model = model_of(nodes, inputs, constants={"bias": bias})
    (launch,) = plan_of(model, inputs).launches
    assert "ulong2 *)i0)[block]" in launch.source.text
    assert "ulong2 *)i1)[(" in launch.source.text
    assert_same_on("STANDIN", stand_in_core, model, inputs)
