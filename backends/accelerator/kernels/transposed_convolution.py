"""ConvTranspose: each work-item sums up what windows, seen backwards, write to its elements."""

from __future__ import annotations

import math

from ....runtime.graph import Node
from ....runtime.lowering.window import transposed_window
from ..elementwise.c_types import C_TYPES
from ..elementwise.fused_step import ACCELERATOR_DOMAIN
from ..launching.kernel_source import KernelSource
from ..launching.reach import elements
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from .convolution import GROUP, bias_operands, bias_steps, channel_block
from .epilogue import epilogue_code
from .registry import kernel
from .window_code import (
    check_windows,
    lengths_of,
    nested_index,
    parameters_of,
    place_lines,
    transposed_loops,
    weight_place,
)

_TEXT = """
__kernel void $name(__global const {memory} *x, __global const {memory} *w, __global {memory} *y,
                    const int pixels, const int blocks, const int group_blocks, const int channels,
                    const int groups, const int size{parameters}) {{
    const int pixel = get_global_id(0), item = get_global_id(1);
    if (pixel >= pixels) return;
    const int image = item / blocks, block = item % blocks, group = block / group_blocks;
    const int made = group_blocks * {block}, first = block % group_blocks * {block};
    int rest = pixel;
    {places}
    float sums[{block}];
    for (int j = 0; j < {block}; j++) sums[j] = 0.0f;
    {loops}
        int seen = (image * groups + group) * channels * size + {seen};
        int weight = (group * channels * made + first) * {window} + {weight};
        for (int c = 0; c < channels; c++, seen += size, weight += made * {window}) {{
            const float v = {load_x};
            for (int j = 0; j < {block}; j++) sums[j] += v * {load_w};
        }}
    {ends}
    for (int j = 0; j < {block}; j++) {{
        const int o = (item * {block} + j) * pixels + pixel;
        const float acc = sums[j];
        {epilogue}
    }}
}}
"""


@kernel("ConvTranspose")
@kernel("ConvTranspose", domain=ACCELERATOR_DOMAIN)
def lower_conv_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a transposed convolution of any number of spatial axes, grouped, dilated."""
    source, weights = node.inputs[:2]
    assert source is not None
    assert weights is not None
    image, filters = builder.operand(source), builder.operand(weights)
    made = builder.result(node.outputs[0])
    groups = int(node.attributes.get("group", 1))
    check_transposed(builder, image, filters, made, groups)
    window = transposed_window(node, filters.shape[2:], image.shape[2:], made.shape[2:])
    check_windows(builder, window, image.shape[2:], made.shape[2:])
    epilogue = epilogue_code(
        node, builder, made, "acc", "o", bias_steps(node), bias_operands(node, builder)
    )
    rank, kind = len(window.kernel), C_TYPES[made.dtype]
    outputs, channels = made.shape[1], image.shape[1] // groups
    block = channel_block(outputs // groups)
    named = lengths_of(image.shape[2:], made.shape[2:], window.pads_begin)
    count = math.prod(window.kernel)
    text = _TEXT.format(
        memory=kind.memory,
        parameters=parameters_of(named) + epilogue.parameters,
        places=place_lines(rank),
        block=block,
        loops=transposed_loops(window),
        seen=nested_index("0", range(rank)),
        window=count,
        weight=weight_place(window),
        load_x=kind.load("x", "seen"),
        load_w=kind.load("w", f"weight + j * {count}"),
        ends="}" * rank,
        epilogue=epilogue.text,
    )
    pixels, blocks = math.prod(made.shape[2:]), outputs // block
    arguments: list[LaunchArgument] = [image, filters, made, pixels, blocks, blocks // groups]
    arguments += [channels, groups, math.prod(image.shape[2:])]
    arguments += [*(number for _, number in named), *epilogue.arguments]
    sizes = (pixels, made.shape[0] * blocks), (min(GROUP, builder.work_group_size), 1)
    images = made.shape[0]
    reaches = [
        elements(images * groups * channels * math.prod(image.shape[2:]), made.dtype),
        elements(groups * channels * (outputs // groups) * count, made.dtype),
        elements(images * outputs * pixels, made.dtype),
        *epilogue.reaches,
    ]
    builder.launch(KernelSource.of("deconv", text), arguments, *sizes, reaches)


def check_transposed(
    builder: PlanBuilder, image: Operand, filters: Operand, made: Operand, groups: int
) -> None:
    """Raise GraphError unless batches, channels and groups belong together."""
    is_fit = len(image.shape) == len(filters.shape) == len(made.shape) > 2 and groups > 0
    if not is_fit or (
        image.shape[1] != filters.shape[0]
        or image.shape[1] % groups
        or made.shape[:2] != (image.shape[0], filters.shape[1] * groups)
    ):
        raise builder.contradiction(
            f"filters of {list(filters.shape)} in {groups} groups do not make {list(made.shape)} "
            f"of {list(image.shape)}"
        )
