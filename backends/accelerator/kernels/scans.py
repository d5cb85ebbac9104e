"""Operators over the places of a matrix or a line: Trilu and CumSum."""

from __future__ import annotations

import math

from ....runtime.graph import Node
from ..elementwise.c_types import C_TYPES, ELEMENT_WORDS, FLOATS, INTEGERS
from ..elementwise.fused_launch import line_groups
from ..launching.kernel_source import KernelSource
from ..launching.reach import elements
from ..plan_builder import PlanBuilder
from .registry import kernel

_TRILU_TEXT = """
__kernel void $name(__global const {word} *x, __global {word} *y, const int count,
                    const int height, const int width, const int shift) {{
    const int i = get_global_id(0);
    if (i >= count) return;
    const int beyond = i % width - i / width % height - shift;
    y[i] = beyond {compare} 0 ? x[i] : 0;
}}
"""

_CUMSUM_TEXT = """
__kernel void $name(__global const {memory} *x, __global {memory} *y, const int lines,
                    const int length, const int inner) {{
    const int line = get_global_id(0);
    if (line >= lines) return;
    const int start = line / inner * inner * length + line % inner;
    {register} sum = 0;
    for (int k = 0; k < length; k++) {{
        const int at = start + {place} * inner;
        const {register} own = {x};
        {body}
    }}
}}
"""


@kernel("Trilu", dtypes=None, constant_inputs=(1,))
def lower_trilu(node: Node, builder: PlanBuilder) -> None:
    """Lower the upper or lower triangle of matrices, with zeros elsewhere; any type."""
    source = node.inputs[0]
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    text = _TRILU_TEXT.format(
        word=ELEMENT_WORDS[made.dtype.item_bytes],
        compare=">=" if node.attributes.get("upper", 1) else "<=",
    )
    if len(made.shape) < 2 or operand.shape != made.shape:
        raise builder.contradiction(f"{list(operand.shape)} has no triangle of {list(made.shape)}")
    height, width = made.shape[-2:]
    # Diagonals beyond the matrix are all the same.
    shift = min(max((node.integers_at(1) or [0])[0], -height - 1), width + 1)
    builder.launch(
        KernelSource.of("trilu", text),
        [operand, made, made.count, height, width, shift],
        *line_groups(builder, made.count),
        [elements(made.count, made.dtype)] * 2,
    )


@kernel("CumSum", dtypes={*FLOATS, *INTEGERS}, constant_inputs=(1,))
def lower_cumsum(node: Node, builder: PlanBuilder) -> None:
    """Lower running sums along an axis: one work-item for each line."""
    source = node.inputs[0]
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    if not made.shape or operand.shape != made.shape:
        raise builder.contradiction(f"{list(operand.shape)} has no sums {list(made.shape)}")
    axis = builder.axis((node.integers_at(1) or [0])[0], len(made.shape))
    length, inner = made.shape[axis], math.prod(made.shape[axis + 1 :])
    kind = C_TYPES[made.dtype]
    add, store = "sum += own;", kind.store("sum", "y", "at")
    text = _CUMSUM_TEXT.format(
        memory=kind.memory,
        register=kind.register,
        place="(length - 1 - k)" if node.attributes.get("reverse") else "k",
        x=kind.load("x", "at"),
        body=f"{store} {add}" if node.attributes.get("exclusive") else f"{add} {store}",
    )
    lines = math.prod(made.shape[:axis]) * inner if length else 0
    builder.launch(
        KernelSource.of("cumsum", text),
        [operand, made, lines, length, inner],
        *line_groups(builder, lines),
        [elements(lines * length, made.dtype)] * 2,
    )
