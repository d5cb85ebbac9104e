"""Softmax and LogSoftmax along any axis: one work-item for each row."""

from __future__ import annotations

import math

from ...graph import Node
from ..c_types import C_TYPES
from ..chain_launch import line_groups
from ..kernel_source import KernelSource
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from .registry import kernel

_TEXT = """
__kernel void $name(__global const {memory} *x, __global {memory} *y, const int rows,
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


@kernel("Softmax", "LogSoftmax")
def lower_softmax(node: Node, builder: PlanBuilder) -> None:
    """Lower along one axis of a row-major tensor."""
    (source,) = node.inputs
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    axis = int(node.attributes.get("axis", -1)) % max(1, len(made.shape))
    length = math.prod(made.shape[axis : axis + 1])
    inner = math.prod(made.shape[axis + 1 :])
    rows = math.prod(made.shape[:axis]) * inner
    kind, place = C_TYPES[made.dtype], "start + k * inner"
    x = kind.load("x", place)
    is_log = node.op_type == "LogSoftmax"
    finish = "const float shift = top + log(sum);" if is_log else "const float scale = 1.0f / sum;"
    value = f"{x} - shift" if is_log else f"exp({x} - top) * scale"
    text = _TEXT.format(memory=kind.memory, x=x, finish=finish, store=kind.store(value, "y", place))
    arguments: list[LaunchArgument] = [operand, made, rows, length, inner]
    source_text = KernelSource.of("softmax", text)
    builder.launch(source_text, arguments, *line_groups(builder, rows if length else 0))
