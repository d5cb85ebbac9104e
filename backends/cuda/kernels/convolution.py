"""Conv and ConvTranspose with channels last: cuDNN's, or summed up directly.

The latter is better where each channel has filters of its own, because cuDNN's engines for that
with a bias are slow. It also serves ConvTranspose, and where cuDNN is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ....runtime.graph import Node, Value
from ....runtime.lowering.window import Window, transposed_window, window_of
from ....runtime.passes.rewriting.matching import scalar_of
from ...accelerator.elementwise.fused_step import parse_steps
from ...accelerator.kernels.epilogue import EPILOGUE_START, extra_operands
from ...accelerator.kernels.window_code import transposed_loops, window_loops
from ...accelerator.launching.table_gather import table_operand
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from ..domain import CUDA_DOMAIN
from .conv_epilogue import fit_epilogue
from .direct_convolution import DirectSum, launch_direct_sum
from .filter_order import (
    filters_by_place,
    filters_with_channels_last,
    transposed_filters_by_place,
)
from .library_call import call_library, has_tf32, launch_rest
from .registry import kernel


@kernel("Conv", domain=CUDA_DOMAIN)
def lower_conv(node: Node, builder: PlanBuilder) -> None:
    """Lower a convolution of one or two axes whose maps have channels last.

    The filters are as in ONNX. The image may have more channels than they know, full of zeros.
    """
    source, weights = node.inputs[:2]
    assert source is not None
    assert weights is not None
    image = builder.operand(source)
    filters = builder.shape(weights)
    window = window_of(node, filters[2:], image.shape[1:-1])
    is_own = filters[1] == 1 and filters[0] > 1 and int(node.attributes.get("group", 1)) > 1
    if not is_own and builder.has_library("cudnn"):
        _call(node, builder, image, weights, window)
        return
    made, groups = builder.result(node.outputs[0]), int(node.attributes.get("group", 1))
    channels = image.shape[-1] // groups
    laid_out = filters_by_place(builder, weights, channels, made.dtype)
    loops = window_loops(window)
    parts = DirectSum("conv_last", image, laid_out, groups, window, loops)
    launch_direct_sum(node, builder, made, parts)


@kernel("ConvTranspose", domain=CUDA_DOMAIN)
def lower_conv_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a transposed convolution of one or two axes whose maps have channels last."""
    source, weights = node.inputs[:2]
    assert source is not None
    assert weights is not None
    image, made = builder.operand(source), builder.result(node.outputs[0])
    groups = int(node.attributes.get("group", 1))
    lengths = builder.shape(weights)[2:], image.shape[1:-1], made.shape[1:-1]
    window = transposed_window(node, *lengths)
    filters = transposed_filters_by_place(builder, weights, groups, made.dtype)
    loops = transposed_loops(window)
    parts = DirectSum("deconv_last", image, filters, groups, window, loops)
    launch_direct_sum(node, builder, made, parts)


def _call(node: Node, builder: PlanBuilder, image: Operand, weights: Value, window: Window) -> None:
    """Call cuDNN, with those of the node's steps that it has, and launch the rest in place."""
    result = node.outputs[0]
    made = builder.result(result)
    fitted = fit_epilogue(parse_steps(node), *_operand_kinds(node, builder, made))
    groups = int(node.attributes.get("group", 1))
    channels = image.shape[-1] // groups
    filters = filters_with_channels_last(builder, weights, channels, made.dtype)
    bias = _bias(node, builder, made, has_more=bool(fitted.activation or fitted.residual))
    inputs = [image, filters]
    inputs += [] if bias is None else [bias]
    inputs += [] if fitted.residual is None else [_extra(node, builder, fitted.residual)]
    call_library(
        builder,
        "cudnn",
        "conv",
        inputs,
        made,
        image=_as_planes(image.shape),
        filters=_as_planes(filters.shape),
        strides=_as_pair(window.strides, 1),
        pads_begin=_as_pair(window.pads_begin, 0),
        pads_end=_as_pair(window.pads_end, 0),
        dilations=_as_pair(window.dilations, 1),
        groups=groups,
        has_bias=bias is not None,
        has_residual=fitted.residual is not None,
        activation=fitted.activation,
        number=fitted.number,
        has_tf32=has_tf32(builder, made),
    )
    if fitted.rest:
        launch_rest(builder, fitted.rest, extra_operands(node, builder), made)


def _bias(node: Node, builder: PlanBuilder, made: Operand, *, has_more: bool) -> Operand | None:
    """Return the bias; zeros where there is none and something follows.

    With a bias cuDNN has engines that are compiled ahead, without one it compiles them.
    """
    given = node.input_at(2)
    if given is not None:
        return builder.operand(given)
    return table_operand(builder, np.zeros(made.shape[-1], made.dtype.numpy)) if has_more else None


def _operand_kinds(
    node: Node, builder: PlanBuilder, made: Operand
) -> tuple[set[str], Mapping[str, float]]:
    """Name the extra operands that are maps like the result, and those that are numbers."""
    maps: set[str] = set()
    numbers: dict[str, float] = {}
    for index, value in enumerate(node.inputs[EPILOGUE_START:], EPILOGUE_START):
        number = scalar_of(value)
        if number is not None:
            numbers[f"i{index}"] = number
        elif value is not None and _is_like(made, value, builder):
            maps.add(f"i{index}")
    return maps, numbers


def _is_like(made: Operand, value: Value, builder: PlanBuilder) -> bool:
    return builder.shape(value) == made.shape and builder.held_dtype(value) is made.dtype


def _extra(node: Node, builder: PlanBuilder, name: str) -> Operand:
    value = node.inputs[int(name[1:])]
    assert value is not None
    return builder.operand(value)


def _as_planes(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return lengths with channels last as cuDNN counts them: channels second, always two axes."""
    first, *places, channels = shape
    height, width = _as_pair(places, 1)
    return first, channels, height, width


def _as_pair(numbers: Sequence[int], default: int) -> tuple[int, int]:
    """Read what is given for one axis as for two, the first of length 1."""
    first, second = (default, *numbers)[-2:]
    return first, second
