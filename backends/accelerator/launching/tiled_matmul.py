"""Matmuls by tiles in local memory, batched, of matrices with any strides.

A group of 8 x 8 work-items computes a tile of 32 x 32, each work-item 4 x 4 of it, from 16 columns
and rows at a time that the group has brought to local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..elementwise.c_types import C_TYPES
from ..elementwise.operand_walk import index_code, plan_walk
from ..operand import Operand
from ..plan import LaunchArgument
from .kernel_source import KernelSource
from .reach import Reach, box, elements

if TYPE_CHECKING:
    from ..plan_builder import PlanBuilder

__all__ = ["Matrices", "launch_matmul"]

_TILE = 32
_GROUP = 8

_TEXT = """
__kernel void $name(__global const {a_type} *a, __global const {b_type} *b, __global {y_type} *y,
                    const int M, const int N, const int K, const int am, const int ak,
                    const int bk, const int bn, const int first_a, const int first_b{parameters}) {{
    __local float left[16][33], right[16][33];
    const int lx = get_local_id(0), ly = get_local_id(1), z = get_global_id(2);
    const int n0 = get_group_id(0) * 32, m0 = get_group_id(1) * 32;
    {batch_lines}
    const int a0 = first_a + {a_index}, b0 = first_b + {b_index};
    float sums[4][4];
    for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) sums[i][j] = 0.0f;
    for (int k0 = 0; k0 < K; k0 += 16) {{
        for (int e = ly * 8 + lx; e < 512; e += 64) {{
            const int m = m0 + e / 16, ka = k0 + e % 16;
            left[e % 16][e / 16] = m < M && ka < K ? {load_a} : 0.0f;
            const int n = n0 + e % 32, kb = k0 + e / 32;
            right[e / 32][e % 32] = n < N && kb < K ? {load_b} : 0.0f;
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 16; k++) {{
            float x[4], w[4];
            for (int i = 0; i < 4; i++) x[i] = left[k][ly * 4 + i];
            for (int j = 0; j < 4; j++) w[j] = right[k][lx + 8 * j];
            for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) sums[i][j] += x[i] * w[j];
        }}
        barrier(CLK_LOCAL_MEM_FENCE);
    }}
    for (int i = 0; i < 4; i++) {{
        for (int j = 0; j < 4; j++) {{
            const int m = m0 + ly * 4 + i, n = n0 + lx + 8 * j;
            if (m >= M || n >= N) continue;
            const int o = (z * M + m) * N + n;
            const float acc = sums[i][j];
            {epilogue}
        }}
    }}
}}
"""


class Epilogue(Protocol):
    """The end of a kernel; see ``kernels/epilogue.py``."""

    text: str
    parameters: str
    arguments: tuple[LaunchArgument, ...]
    reaches: tuple[Reach, ...]


@dataclass(frozen=True)
class Matrices:
    """One side of a matmul: ``strides`` of a matrix's (row, column), ``batch`` of the others.

    All are in elements; a batch axis of stride 0 uses the same matrix again. ``first`` is the
    number of the element with which the first matrix begins.
    """

    operand: Operand
    strides: tuple[int, int]
    batch: tuple[int, ...]
    first: int = 0

    def reach(self, batch: Sequence[int], rows: int, columns: int) -> Reach:
        """Return what a number of matrices of a size touch of the operand."""
        strides = (*self.batch, *self.strides)
        return box((*batch, rows, columns), strides, self.operand.dtype, self.first)


def launch_matmul(
    builder: PlanBuilder,
    left: Matrices,
    right: Matrices,
    result: Operand,
    batch: Sequence[int],
    lengths: tuple[int, int, int],
    epilogue: Callable[[str, str], Epilogue],
) -> None:
    """Launch ``result[batch, m, n] = sum over k``; ``lengths`` are those of m, n and k.

    ``epilogue`` gets the names of the sum and of the index of its element in the result.
    """
    m, n, k = lengths
    count = 1
    for length in batch:
        count *= length
    code = index_code(plan_walk(batch, [left.batch, right.batch]), "z", "z")
    end = epilogue("acc", "o")
    kinds = [C_TYPES[item.dtype] for item in (left.operand, right.operand, result)]
    text = _TEXT.format(
        a_type=kinds[0].memory,
        b_type=kinds[1].memory,
        y_type=kinds[2].memory,
        parameters="".join(f", const int {name}" for name, _ in code.parameters) + end.parameters,
        batch_lines=" ".join(code.lines),
        a_index=code.expressions[0],
        b_index=code.expressions[1],
        load_a=kinds[0].load("a", "a0 + m * am + ka * ak"),
        load_b=kinds[1].load("b", "b0 + kb * bk + n * bn"),
        epilogue=end.text,
    )
    arguments: list[LaunchArgument] = [left.operand, right.operand, result, m, n, k]
    arguments += [*left.strides, *right.strides, left.first, right.first]
    arguments += [number for _, number in code.parameters]
    arguments += end.arguments
    columns, rows = -(-n // _TILE) * _GROUP, -(-m // _TILE) * _GROUP
    source = KernelSource.of("matmul", text)
    reaches = [
        left.reach(batch, m, k),
        right.reach(batch, k, n),
        elements(count * m * n, result.dtype),
        *end.reaches,
    ]
    if count * m * n != result.count:
        raise builder.contradiction(
            f"{count} matmuls of {m} x {n} do not make {list(result.shape)}"
        )
    builder.launch(source, arguments, (columns, rows, count), (_GROUP, _GROUP, 1), reaches)
