"""Moving elements of any type: each element of the result comes from a strided place.

Transpose, Slice, Expand and their like differ in strides and offsets alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.lowering.strides import row_major
from ..elementwise.c_types import ELEMENT_WORDS
from ..elementwise.fused_launch import Launcher, line_groups
from ..elementwise.operand_walk import index_code, plan_walk
from ..operand import Operand
from ..plan import LaunchArgument
from .kernel_source import KernelSource
from .reach import box

__all__ = ["strided_copy"]


def strided_copy(
    builder: Launcher,
    source: Operand,
    target: Operand,
    shape: Sequence[int],
    source_strides: Sequence[int],
    source_offset: int = 0,
    target_strides: Sequence[int] | None = None,
    target_offset: int = 0,
) -> None:
    """Copy a box of ``shape``; strides and offsets are in elements, and may be negative or 0.

    By default the target is filled as a dense box. Both have elements of one size.
    """
    targets = row_major(shape) if target_strides is None else tuple(target_strides)
    walk = plan_walk(shape, [source_strides, targets])
    code = index_code(walk, "i", "w")
    word = ELEMENT_WORDS[target.dtype.item_bytes]
    read, write = code.expressions
    lengths = [name for name, _ in code.parameters]
    parameters = "".join(f", const int {name}" for name in lengths)
    text = (
        f"__kernel void $name(__global const {word} *x, __global {word} *y, const int count, "
        f"const int from, const int to{parameters}) {{\n"
        "    const int i = get_global_id(0);\n"
        "    if (i >= count) return;\n"
        + "".join(f"    {line}\n" for line in code.lines)
        + f"    y[to + {write}] = x[from + {read}];\n}}\n"
    )
    count = 1
    for length in shape:
        count *= length
    arguments: list[LaunchArgument] = [source, target, count, source_offset, target_offset]
    arguments += [number for _, number in code.parameters]
    reaches = [
        box(shape, source_strides, target.dtype, source_offset),
        box(shape, targets, target.dtype, target_offset),
    ]
    builder.launch(KernelSource.of("copy", text), arguments, *line_groups(builder, count), reaches)
