"""Conv: a matmul where the window is 1 x 1, else each work-item sums up its elements directly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from ....runtime.graph import DType, Node
from ....runtime.lowering.window import Window, window_of
from ..elementwise.c_types import C_TYPES
from ..elementwise.fused_step import ACCELERATOR_DOMAIN, FusedStep
from ..launching.kernel_source import KernelSource
from ..launching.reach import elements
from ..launching.tiled_matmul import Matrices, launch_matmul
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from .epilogue import EpilogueCode, epilogue_code
from .registry import kernel
from .window_code import (
    check_windows,
    lengths_of,
    nested_index,
    parameters_of,
    place_lines,
    weight_place,
    window_loops,
)

__all__ = ["GROUP", "bias_operands", "bias_steps", "channel_block", "check_channels"]

GROUP = 64
_BLOCK = 4

_TEXT = """
__kernel void $name(__global const {memory} *x, __global const {memory} *w, __global {memory} *y,
                    const int pixels, const int blocks, const int group_blocks, const int channels,
                    const int groups{parameters}) {{
    const int pixel = get_global_id(0), item = get_global_id(1);
    if (pixel >= pixels) return;
    const int image = item / blocks, block = item % blocks, group = block / group_blocks;
    int rest = pixel;
    {places}
    float sums[{block}];
    for (int j = 0; j < {block}; j++) sums[j] = 0.0f;
    for (int c = 0; c < channels; c++) {{
        const int plane = (image * groups + group) * channels + c;
        const int filter = block * {block} * channels + c;
        {loops}
            const float v = {load_x};
            for (int j = 0; j < {block}; j++) sums[j] += v * {load_w};
        {ends}
    }}
    for (int j = 0; j < {block}; j++) {{
        const int o = (item * {block} + j) * pixels + pixel;
        const float acc = sums[j];
        {epilogue}
    }}
}}
"""


@kernel("Conv")
@kernel("Conv", domain=ACCELERATOR_DOMAIN)
def lower_conv(node: Node, builder: PlanBuilder) -> None:
    """Lower a convolution of one or more spatial axes, grouped, dilated, padded at will."""
    source, weights = node.inputs[:2]
    assert source is not None
    assert weights is not None
    image, filters = builder.operand(source), builder.operand(weights)
    made = builder.result(node.outputs[0])
    window = window_of(node, filters.shape[2:], image.shape[2:])
    groups = int(node.attributes.get("group", 1))
    check_channels(builder, image, filters, made, groups)
    check_windows(builder, window, image.shape[2:], made.shape[2:])
    epilogue = partial(
        epilogue_code,
        node,
        builder,
        made,
        first=bias_steps(node),
        operands=bias_operands(node, builder),
    )
    if window.is_single and groups == 1:
        batch, channels, outputs = image.shape[0], image.shape[1], filters.shape[0]
        pixels = math.prod(image.shape[2:])
        launch_matmul(
            builder,
            Matrices(filters, (channels, 1), (0,)),
            Matrices(image, (pixels, 1), (channels * pixels,)),
            made,
            (batch,),
            (outputs, pixels, channels),
            epilogue,
        )
        return
    _launch(builder, image, filters, made, window, groups, epilogue("acc", "o"))


def bias_steps(node: Node) -> list[FusedStep]:
    """Write what adds a convolution's bias, if it has one, before its other steps."""
    has_bias = node.input_at(2) is not None
    return [FusedStep("Add", ("acc", "i2"), DType.FLOAT32)] if has_bias else []


def bias_operands(node: Node, builder: PlanBuilder) -> Mapping[str, Operand | float]:
    """Return what ``bias_steps`` read, as one number a channel."""
    value = node.input_at(2)
    if value is None:
        return {}
    bias = builder.operand(value)
    weights = node.inputs[1]
    assert weights is not None
    made = builder.shape(node.outputs[0])
    if bias.shape != made[1:2]:
        raise builder.contradiction(f"a bias of {list(bias.shape)} is not for {list(made)}")
    return {"i2": bias.viewed((bias.count, *[1] * (len(builder.shape(weights)) - 2)))}


def check_channels(
    builder: PlanBuilder, image: Operand, filters: Operand, made: Operand, groups: int
) -> None:
    """Raise GraphError unless batches, channels and groups of a convolution belong together."""
    is_fit = len(image.shape) == len(filters.shape) == len(made.shape) > 2 and groups > 0
    if not is_fit or (
        image.shape[1] != filters.shape[1] * groups
        or filters.shape[0] % groups
        or made.shape[:2] != (image.shape[0], filters.shape[0])
    ):
        raise builder.contradiction(
            f"filters of {list(filters.shape)} in {groups} groups do not make {list(made.shape)} "
            f"of {list(image.shape)}"
        )


def channel_block(channels: int) -> int:
    """Choose how many of a group's output channels one work-item computes.

    It reads each input once for all of them.
    """
    return _BLOCK if channels % _BLOCK == 0 else 1


def _launch(
    builder: PlanBuilder,
    image: Operand,
    filters: Operand,
    made: Operand,
    window: Window,
    groups: int,
    end: EpilogueCode,
) -> None:
    outputs, channels = filters.shape[:2]
    block, rank = channel_block(outputs // groups), len(window.kernel)
    named = lengths_of(image.shape[2:], made.shape[2:], window.pads_begin)
    kind, count = C_TYPES[made.dtype], math.prod(window.kernel)
    weight = f"(filter + j * channels) * {count} + {weight_place(window)}"
    text = _TEXT.format(
        memory=kind.memory,
        parameters=parameters_of(named) + end.parameters,
        places=place_lines(rank),
        block=block,
        loops=window_loops(window),
        ends="}" * rank,
        load_x=kind.load("x", nested_index("plane", range(rank))),
        load_w=kind.load("w", weight),
        epilogue=end.text,
    )
    pixels, blocks = math.prod(made.shape[2:]), outputs // block
    arguments: list[LaunchArgument] = [image, filters, made, pixels, blocks, blocks // groups]
    arguments += [channels, groups, *(number for _, number in named), *end.arguments]
    group = min(GROUP, builder.work_group_size)
    sizes = (pixels, made.shape[0] * blocks), (group, 1)
    images = made.shape[0]
    reaches = [
        elements(images * groups * channels * math.prod(image.shape[2:]), made.dtype),
        elements(outputs * channels * count, made.dtype),
        elements(images * outputs * pixels, made.dtype),
        *end.reaches,
    ]
    builder.launch(KernelSource.of("conv", text), arguments, *sizes, reaches)
