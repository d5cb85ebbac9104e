"""Softmax and LogSoftmax along any axis; rows that lie in one piece are shared by work-items."""

from __future__ import annotations

import math

from ....runtime.graph import Node
from ..elementwise.c_types import C_TYPES
from ..elementwise.fused_launch import line_groups
from ..launching.kernel_source import KernelSource
from ..launching.reach import elements
from ..launching.row_groups import RowGroups
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from .registry import kernel

__all__ = ["launch_softmax"]

_ROWS_TEXT = """
__kernel void $name(__global const {read} *x, __global {memory} *y, {parameters}) {{
    {start}
    {top}
    {sum}
    {finish}
    {loop} {store} }}
}}
"""

_ACROSS_TEXT = """
__kernel void $name(__global const {read} *x, __global {memory} *y, const int rows,
                    const int length, const int inner) {{
    const int row = get_global_id(0);
    if (row >= rows) return;
    const int start = row / inner * inner * length + row % inner;
    float top = -INFINITY;
    for (int k = 0; k < length; k++) top = greatest(top, {x});
    float sum = 0.0f;
    for (int k = 0; k < length; k++) sum += exp({x} - top);
    {finish}
    for (int k = 0; k < length; k++) {{ {store} }}
}}
"""

_FINISH = {
    False: "const float scale = 1.0f / sum;",
    True: "const float shift = log(sum);",
}
"""Before the elements are written; by whether it is LogSoftmax.

Its shift and the top are taken off one after the other: their sum would lose the shift's digits.
"""


@kernel("Softmax", "LogSoftmax")
def lower_softmax(node: Node, builder: PlanBuilder) -> None:
    """Lower along one axis of a row-major tensor."""
    (source,) = node.inputs
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    axis = builder.axis(int(node.attributes.get("axis", -1)), len(made.shape))
    launch_softmax(builder, operand, made, axis, is_log=node.op_type == "LogSoftmax")


def launch_softmax(
    builder: PlanBuilder, operand: Operand, made: Operand, axis: int, *, is_log: bool = False
) -> None:
    """Launch along an axis that is not negative; the operand may have another float type."""
    length = math.prod(made.shape[axis : axis + 1])
    inner = math.prod(made.shape[axis + 1 :])
    rows = math.prod(made.shape[:axis]) * inner
    if operand.shape != made.shape:
        raise builder.contradiction(f"{list(operand.shape)} does not become {list(made.shape)}")
    if not rows or not length:
        return
    place = "row * length + k" if inner == 1 else "start + k * inner"
    kind, read = C_TYPES[made.dtype], C_TYPES[operand.dtype]
    x = read.load("x", place)
    value = f"({x} - top) - shift" if is_log else f"exp({x} - top) * scale"
    parts = {
        "read": read.memory,
        "memory": kind.memory,
        "finish": _FINISH[is_log],
        "store": kind.store(value, "y", place),
    }
    if inner == 1:
        _launch_rows(builder, operand, made, RowGroups(rows, length), parts)
        return
    source = KernelSource.of("softmax", _ACROSS_TEXT.format(x=x, **parts))
    arguments: list[LaunchArgument] = [operand, made, rows, length, inner]
    reaches = [elements(rows * length, item.dtype) for item in (operand, made)]
    builder.launch(source, arguments, *line_groups(builder, rows), reaches)


def _launch_rows(
    builder: PlanBuilder, operand: Operand, made: Operand, groups: RowGroups, parts: dict[str, str]
) -> None:
    """Launch where the elements of a row lie side by side."""
    element = f"const float v = {C_TYPES[operand.dtype].load('x', 'row * length + k')};"
    text = _ROWS_TEXT.format(
        parameters=groups.parameters,
        start=groups.start,
        top=groups.fold("top", element, "v", "-INFINITY", "greatest({a}, {b})"),
        sum=groups.fold("sum", element, "exp(v - top)", "0.0f", "{a} + {b}"),
        loop=groups.loop,
        **parts,
    )
    arguments: list[LaunchArgument] = [operand, made, groups.rows, groups.length]
    reaches = [elements(groups.rows * groups.length, item.dtype) for item in (operand, made)]
    builder.launch(KernelSource.of("softmax", text), arguments, *groups.sizes, reaches)
