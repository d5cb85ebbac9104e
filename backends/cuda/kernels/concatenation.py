"""Concat in one launch: a work-item for each word of the result, which finds its part.

A dense block of a network joins all that it has made again and again, so that a copy for each part
would be most of the launches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.graph import Node
from ...accelerator.elementwise.c_types import ELEMENT_WORDS
from ...accelerator.elementwise.fused_launch import line_groups
from ...accelerator.kernels import movement as shared
from ...accelerator.kernels.growing_join import join_behind
from ...accelerator.launching.kernel_source import KernelSource
from ...accelerator.launching.reach import Reach
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from .registry import kernel

_MOST_PARTS = 64
"""Of one launch; each is a pointer and a length among the 4 KB of its arguments."""

_TEXT = """
__kernel void $name({parameters}, __global {word} *y, const int count, const int whole) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    const int row = i / whole;
    int at = i % whole;
    {parts}
}}
"""


@kernel("Concat", dtypes=None)
def lower_concat(node: Node, builder: PlanBuilder) -> None:
    """Lower a concatenation of tensors of any type along any axis."""
    if join_behind(node, builder):
        return
    axis, values = shared.joined_parts(node, builder)
    if not 1 < len(values) <= _MOST_PARTS:
        shared.lower_concat(node, builder)
        return
    made, parts = builder.result(node.outputs[0]), [builder.operand(value) for value in values]
    shared.check_parts(builder, made, parts, axis)
    rows = math.prod(made.shape[:axis])
    item_bytes = made.dtype.item_bytes
    word_bytes = widest_word([part.count // rows * item_bytes for part in parts], item_bytes)
    widths = [part.count // rows * item_bytes // word_bytes for part in parts]
    count = rows * sum(widths)
    text = _TEXT.format(
        parameters=", ".join(
            f"__global const {ELEMENT_WORDS[word_bytes]} *x{number}, const int n{number}"
            for number in range(len(parts))
        ),
        word=ELEMENT_WORDS[word_bytes],
        parts="\n    ".join(
            f"if (at < n{number}) {{ y[i] = x{number}[row * n{number} + at]; return; }} "
            f"at -= n{number};"
            for number in range(len(parts))
        ),
    )
    given: list[Operand | int] = []
    for part, width in zip(parts, widths, strict=True):
        given += [part, width]
    builder.launch(
        KernelSource.of("concat", text),
        [*given, made, count, sum(widths)],
        *line_groups(builder, count),
        [Reach(0, rows * width, word_bytes) for width in (*widths, sum(widths))],
    )


def widest_word(row_bytes: Sequence[int], item_bytes: int) -> int:
    """Choose in how many bytes at once rows are moved: all of them are whole words. Pure."""
    sizes = [size for size in ELEMENT_WORDS if size >= item_bytes]
    return max(size for size in sizes if all(length % size == 0 for length in row_bytes))
