"""Conv: a product where the window is 1 x 1, else each work-item sums up its elements directly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from ....runtime.graph import DType, Node
from ..c_types import C_TYPES
from ..chain import OPENCL_DOMAIN, ChainStep
from ..kernel_source import KernelSource
from ..operand import Operand
from ..plan import LaunchArgument
from ..plan_builder import PlanBuilder
from ..product import Matrices, launch_product
from .epilogue import EpilogueCode, epilogue_code
from .registry import kernel
from .windows import Window, window_of

_BLOCK = 4
"""Output channels that one work-item computes, so that it reads each input once for all."""
_GROUP = 64

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
@kernel("Conv", domain=OPENCL_DOMAIN)
def lower_conv(node: Node, builder: PlanBuilder) -> None:
    """Lower a convolution of one or more spatial axes, grouped, dilated, padded at will."""
    source, weights = node.inputs[:2]
    assert source is not None
    assert weights is not None
    image, filters = builder.operand(source), builder.operand(weights)
    made = builder.result(node.outputs[0])
    window = window_of(node.attributes, filters.shape[2:], image.shape[2:])
    groups = int(node.attributes.get("group", 1))
    bias = _bias(node, builder)
    first = [ChainStep("Add", ("acc", "i2"), DType.FLOAT32)] if bias else []
    epilogue = partial(epilogue_code, node, builder, made, first=first, operands=bias)
    if window.is_single and groups == 1:
        batch, channels, outputs = image.shape[0], image.shape[1], filters.shape[0]
        pixels = math.prod(image.shape[2:])
        launch_product(
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


def _bias(node: Node, builder: PlanBuilder) -> Mapping[str, Operand | float]:
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None:
        return {}
    bias = builder.operand(value)
    weights = node.inputs[1]
    assert weights is not None
    return {"i2": bias.viewed((bias.count, *[1] * (len(builder.shape(weights)) - 2)))}


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
    block = _BLOCK if outputs // groups % _BLOCK == 0 else 1
    rank = len(window.kernel)
    lengths = [(f"x{axis}", image.shape[2 + axis]) for axis in range(rank)]
    lengths += [(f"y{axis}", made.shape[2 + axis]) for axis in range(1, rank)]
    lengths += [(f"p{axis}", window.begins[axis]) for axis in range(rank)]
    kind = C_TYPES[made.dtype]
    text = _TEXT.format(
        memory=kind.memory,
        parameters="".join(f", const int {name}" for name, _ in lengths) + end.parameters,
        places=" ".join(_places(rank)),
        block=block,
        loops="\n        ".join(_loops(window)),
        ends="}" * rank,
        load_x=kind.load("x", _nested("plane", [f"a{axis}" for axis in range(rank)], "x")),
        load_w=kind.load("w", _weight_index(window)),
        epilogue=end.text,
    )
    pixels, blocks = math.prod(made.shape[2:]), outputs // block
    arguments: list[LaunchArgument] = [image, filters, made, pixels, blocks, blocks // groups]
    arguments += [channels, groups, *(number for _, number in lengths), *end.arguments]
    group = min(_GROUP, builder.work_group_size)
    sizes = (pixels, made.shape[0] * blocks), (group, 1)
    builder.launch(KernelSource.of("conv", text), arguments, *sizes)


def _places(rank: int) -> list[str]:
    """Take a pixel's number apart, from the last axis to the first."""
    lines = []
    for axis in reversed(range(1, rank)):
        lines.append(f"const int o{axis} = rest % y{axis}; rest /= y{axis};")
    return [*lines, "const int o0 = rest;"]


def _loops(window: Window) -> list[str]:
    lines = []
    for axis, length in enumerate(window.kernel):
        place = f"o{axis} * {window.strides[axis]} - p{axis} + k{axis} * {window.dilations[axis]}"
        lines.append(
            f"for (int k{axis} = 0; k{axis} < {length}; k{axis}++) {{ const int a{axis} = {place}; "
            f"if (a{axis} < 0 || a{axis} >= x{axis}) continue;"
        )
    return lines


def _nested(start: str, places: list[str], lengths: str) -> str:
    text = start
    for axis, place in enumerate(places):
        text = f"({text} * {lengths}{axis} + {place})"
    return text


def _weight_index(window: Window) -> str:
    text = "(filter + j * channels)"
    for axis, length in enumerate(window.kernel):
        text = f"({text} * {length} + k{axis})"
    return text
