"""Pools of all places of maps with channels last: a group shares some channels' places.

Its work-items stand side by side over channels, as long as there are any, and else over places, so
that neighbours read neighbouring words. Then they join what they have found, half with half.
"""

from __future__ import annotations

import math

from ....runtime.graph import Node
from ...accelerator.elementwise.c_types import C_TYPES
from ...accelerator.launching.kernel_source import KernelSource
from ...accelerator.launching.reach import elements
from ...accelerator.plan_builder import PlanBuilder
from ..domain import CUDA_DOMAIN
from .channel_words import channel_words
from .registry import kernel

__all__ = ["group_shape"]

_LANES = 32
_GROUP = 512
_LEAST_WORK = 4
"""Places of a work-item, at least: to join costs more than to read so few."""

_TEXT = """
__kernel void $name(__global const {memory} *x, __global {memory} *y, const int pixels,
                    const int blocks) {{
    const int block = get_global_id(0), image = get_global_id(2);
    const int lane = get_local_id(0), item = get_local_id(1);
    __local float parts[{items}][{count}][{lanes}];
    {start}
    if (block < blocks) {{
        for (int k = item; k < pixels; k += {items}) {{
            {load}
            {update}
        }}
    }}
    {leave}
    for (int apart = {items} / 2; apart > 0; apart /= 2) {{
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < apart) {{ {join} {leave} }}
    }}
    if (item == 0 && block < blocks) {{
        {finish}
        {store}
    }}
}}
"""


@kernel("GlobalAveragePool", "GlobalMaxPool", domain=CUDA_DOMAIN)
def lower_global_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower a mean or a maximum, in which NaN wins, of all places."""
    (source,) = node.inputs
    assert source is not None
    operand, made = builder.operand(source), builder.result(node.outputs[0])
    is_mean = node.op_type == "GlobalAveragePool"
    pixels, words = math.prod(operand.shape[1:-1]), channel_words(made.dtype, made.shape[-1])
    blocks = made.shape[-1] // words.count
    lanes, items = group_shape(blocks, pixels, builder.work_group_size)
    both = "made[j] + {other}" if is_mean else "greatest(made[j], {other})"
    text = _TEXT.format(
        memory=C_TYPES[made.dtype].memory,
        items=items,
        count=words.count,
        lanes=lanes,
        start=words.filled("made", "0.0f" if is_mean else "(-INFINITY)"),
        load=words.load("v", "x", "(image * pixels + k) * blocks + block"),
        update=words.each(f"made[j] = {both.format(other='v[j]')};"),
        leave=words.each("parts[item][j][lane] = made[j];"),
        join=words.each(f"made[j] = {both.format(other='parts[item + apart][j][lane]')};"),
        finish=words.each("made[j] /= pixels;") if is_mean else "",
        store=words.store("made", "y", "image * blocks + block"),
    )
    builder.launch(
        KernelSource.of("global_pool_last", text),
        [operand, made, pixels, blocks],
        (blocks, items, made.shape[0]),
        (lanes, items, 1),
        [
            elements(made.shape[0] * pixels * made.shape[-1], made.dtype),
            elements(made.shape[0] * made.shape[-1], made.dtype),
        ],
    )


def group_shape(blocks: int, pixels: int, most: int) -> tuple[int, int]:
    """Choose how many work-items of a group stand along channels and along places. Pure.

    Both are powers of two, and together no more than ``most``.
    """
    room = _power_below(min(_GROUP, most))
    lanes = min(_LANES, room, _power_below(2 * blocks - 1))
    return lanes, min(room // lanes, _power_below(max(1, pixels // _LEAST_WORK)))


def _power_below(number: int) -> int:
    """Return the largest power of two that is not above a number."""
    return 1 << (number.bit_length() - 1)
