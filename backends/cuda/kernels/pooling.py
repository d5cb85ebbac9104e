"""Pools of maps with channels last: a work-item for a block of channels of each result."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ....runtime.accelerator.c_types import C_TYPES, extremes
from ....runtime.accelerator.kernel_source import KernelSource
from ....runtime.accelerator.kernels.window_code import (
    lengths_of,
    nested_index,
    parameters_of,
    place_lines,
    window_loops,
)
from ....runtime.accelerator.operand import Operand
from ....runtime.accelerator.plan import LaunchArgument
from ....runtime.accelerator.plan_builder import PlanBuilder
from ....runtime.graph import Node
from ....runtime.window_node import Window, window_of
from ..domain import CUDA_DOMAIN
from .channel_words import ChannelWords, channel_words
from .registry import kernel

_GROUP = 128

_TEXT = """
__kernel void $name(__global const {memory} *x, __global {memory} *y, const int count,
                    const int blocks{parameters}) {{
    const int i = get_global_id(0), image = get_global_id(1);
    if (i >= count) return;
    const int block = i % blocks;
    int rest = i / blocks;
    {places}
    {start}
    {loops}
        {load}
        {update}
    {ends}
    {finish}
    {store}
}}
"""


@kernel("MaxPool", domain=CUDA_DOMAIN)
def lower_max_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower a maximum of each window; NaN wins."""
    source, made, window = _ends(node, builder)
    words = channel_words(made.dtype, made.shape[-1])
    start = words.filled("made", extremes(made.dtype)[0])
    update = words.each("made[j] = greatest(made[j], v[j]);")
    _launch(builder, source, made, window, words, (start, update, ""))


@kernel("AveragePool", domain=CUDA_DOMAIN)
def lower_average_pool(node: Node, builder: PlanBuilder) -> None:
    """Lower an average of what a window sees of the input, or of that and its padding."""
    source, made, window = _ends(node, builder)
    words = channel_words(made.dtype, made.shape[-1])
    start, update = words.filled("made", "0.0f"), words.each("made[j] += v[j];")
    finish = words.each("made[j] /= seen;")
    if not node.attributes.get("count_include_pad", 0):
        texts = f"{start} float seen = 0.0f;", f"{update} seen += 1.0f;", finish
        _launch(builder, source, made, window, words, texts)
        return
    counts = [
        f"min({length}, (x{axis} + e{axis} + {step - 1} - o{axis} * {stride} + p{axis}) / {step})"
        for axis, (length, step, stride) in enumerate(
            zip(window.kernel, window.dilations, window.strides, strict=True)
        )
    ]
    seen = " * ".join(f"(float){count}" for count in counts)
    named = [(f"e{axis}", end) for axis, end in enumerate(window.pads_end)]
    texts = start, update, f"const float seen = {seen}; {finish}"
    _launch(builder, source, made, window, words, texts, named)


def _ends(node: Node, builder: PlanBuilder) -> tuple[Operand, Operand, Window]:
    source = node.inputs[0]
    assert source is not None
    operand = builder.operand(source)
    size = [int(length) for length in node.attributes["kernel_shape"]]
    window = window_of(node, size, operand.shape[1:-1])
    return operand, builder.result(node.outputs[0]), window


def _launch(
    builder: PlanBuilder,
    source: Operand,
    made: Operand,
    window: Window,
    words: ChannelWords,
    texts: tuple[str, str, str],
    more: Sequence[tuple[str, int]] = (),
) -> None:
    """Launch a pool, whose ``texts`` come before the loops, inside of them, and behind.

    They make the array ``made`` of what is seen, ``v``. ``more`` are int arguments.
    """
    rank, kind = len(window.kernel), C_TYPES[made.dtype]
    start, update, finish = texts
    named = [*lengths_of(source.shape[1:-1], made.shape[1:-1], window.pads_begin), *more]
    text = _TEXT.format(
        memory=kind.memory,
        parameters=parameters_of(named),
        places=place_lines(rank),
        start=start,
        loops=window_loops(window),
        load=words.load("v", "x", f"{nested_index('image', range(rank))} * blocks + block"),
        update=update,
        ends="}" * rank,
        finish=finish,
        store=words.store("made", "y", "image * count + i"),
    )
    blocks = made.shape[-1] // words.count
    count = math.prod(made.shape[1:-1]) * blocks
    arguments: list[LaunchArgument] = [source, made, count, blocks]
    arguments += [number for _, number in named]
    group = min(_GROUP, builder.work_group_size)
    builder.launch(
        KernelSource.of("pool_last", text), arguments, (count, made.shape[0]), (group, 1)
    )
