"""How many elements a work-item computes, and how the kernel reads what it needs for them."""

from __future__ import annotations

import pytest

from aioinfer.backends.accelerator.elementwise.fused_blocks import block_code, block_length
from aioinfer.backends.accelerator.elementwise.fused_step import FusedStep
from aioinfer.backends.accelerator.operand import Buffer, Operand
from aioinfer.runtime.graph import DType


def operand(shape: tuple[int, ...], dtype: DType = DType.FLOAT16) -> Operand:
    made = Operand(Buffer("arena", 0), shape, dtype)
    return Operand(Buffer("arena", made.size_bytes), shape, dtype)


@pytest.mark.parametrize(
    ("given", "made", "length"),
    [
        (operand((4, 8)), operand((4, 8)), 8),
        (operand((4, 8)), operand((4, 8), DType.FLOAT32), 4),
        (operand((4, 8), DType.UINT8), operand((4, 8), DType.UINT8), 8),
        (operand((8,), DType.INT64), operand((4, 8), DType.BOOL), 2),
        (operand((1,), DType.INT64), operand((4, 8)), 8),
        (operand((2, 6)), operand((2, 6)), 4),
        (operand((3, 5)), operand((3, 5)), 1),
        (operand((0, 5), DType.FLOAT32), operand((0, 5)), 4),
        (1.5, operand((4, 8)), 8),
    ],
)
def test_a_block_fills_a_word_of_the_widest_operand_and_the_result_has_whole_ones(
    given: Operand | float, made: Operand, length: int
) -> None:
    assert block_length({"i0": given}, made) == length


@pytest.mark.parametrize(
    ("shape", "made", "read"),
    [
        ((4, 16), (4, 16), "together"),
        ((16,), (4, 16), "together"),
        ((4, 1), (4, 16), "once"),
        ((1,), (4, 16), "once"),
        ((2, 1, 16), (2, 3, 16), "together"),
        ((4,), (4, 4), "apart"),
        ((4, 1), (4, 4), "apart"),
        ((2, 1, 12), (2, 2, 12), "apart"),
    ],
)
def test_an_operand_is_read_as_its_rows_allow(
    shape: tuple[int, ...], made: tuple[int, ...], read: str
) -> None:
    steps = [FusedStep("Neg", ("i0",), DType.FLOAT16)]
    code = block_code(steps, {"i0": operand(shape)}, operand(made), 8)
    before, _, within = "\n".join(code.lines).partition("#pragma unroll")
    found = {
        "together": "__global const ulong2 *)i0)[" in before,
        "once": "vload_half" in before and "ulong2" not in before,
        "apart": "vload_half" in within,
    }
    assert [way for way, is_so in found.items() if is_so] == [read]
