"""Conv, in one, two and three dimensions.

Some of oneDNN's kernels are written for two axes only, so a depthwise convolution of one axis is
seen as one of two.

oneDNN has no open lengths for them. Where a network's batch is open and one thread computes, a
primitive for one image is run for each (parts.py), and a new batch needs no other.
"""

from __future__ import annotations

from .....runtime.graph import Node
from .....runtime.lowering.window import Window, window_of
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.plan_builder import PlanBuilder
from ..matrices.epilogue import Epilogue
from ..matrices.parts import is_part, joined
from ..registry import kernel
from .convolution_primitives import (
    CONVOLUTION_DIRECT,
    Convolution,
    bias_desc,
    choose,
    emit_convolution,
    find_refusal,
    given_at,
    groups_of,
    is_trivial,
)

__all__ = ["lower_conv"]

LEAST_WORK = 5_000_000
"""Products for an image, some 100 us: of less, what a call costs of its own would be seen."""


@kernel("Conv", refuses=find_refusal)
@kernel("Conv", domain=CPU_DOMAIN, refuses=find_refusal)
def lower_conv(node: Node, builder: PlanBuilder) -> None:
    """Lower a convolution; weights are packed into the layout that oneDNN chooses."""
    source, weights, (result,) = given_at(node, 0), given_at(node, 1), node.outputs
    shape, result_shape = builder.shape(source), builder.shape(result)
    weight_shape = builder.shape(weights)
    groups = groups_of(node, builder, (shape, weight_shape, result_shape), weight_shape[:1])
    if shape[1] != weight_shape[1] * groups or result_shape[1] != weight_shape[0]:
        raise builder.contradiction(
            f"weights of {weight_shape} make no {result_shape} of {shape} in {groups} groups"
        )
    window = window_of(node, weight_shape[2:], shape[2:]).fitted(shape[2:], result_shape[2:])
    dims = weight_shape
    if groups > 1:
        dims = (groups, weight_shape[0] // groups, *weight_shape[1:])
    convolution = Convolution(
        "convolution_forward",
        CONVOLUTION_DIRECT,
        shape,
        dims,
        result_shape,
        window,
        builder.held_dtype(result),
    )
    if is_trivial(node, convolution, builder):
        return
    if _lower_by_images(node, builder, convolution):
        return
    epilogue, bias = Epilogue(node, builder), bias_desc(node, builder)
    pd = None
    if len(shape) == 3 and convolution.shape.is_depthwise:
        two_axes = Epilogue(node, builder, lambda dims: (*dims[:2], 1, *dims[2:]))
        pd = choose(builder, _with_height(convolution), bias, two_axes.attributes)
        epilogue, pd = (epilogue, None) if pd.desc("dst").strides is None else (two_axes, pd)
    if pd is None:
        pd = choose(builder, convolution, bias, epilogue.attributes)
    packed = builder.reordered(weights, pd.desc("weights"))
    emit_convolution(node, builder, pd, builder.reordered(source, pd.desc("src")), packed, epilogue)


def _lower_by_images(node: Node, builder: PlanBuilder, convolution: Convolution) -> bool:
    """Lower it with a primitive for one image, if that is as fast and serves other batches."""
    images = convolution.source[0]
    if not builder.goes_by_rows or images == 1 or convolution.work_of_an_image < LEAST_WORK:
        return False
    one = convolution._replace(
        source=(1, *convolution.source[1:]), result=(1, *convolution.result[1:])
    )
    epilogue = Epilogue(node, builder, part_count=images)
    pd = choose(builder, one, bias_desc(node, builder), epilogue.attributes)
    if not all(map(is_part, (pd.desc("src"), pd.desc("dst"), *epilogue.descs(pd)))):
        return False
    packed = builder.reordered(given_at(node, 1), pd.desc("weights"))
    source = builder.reordered(given_at(node, 0), joined(pd.desc("src"), images, builder.engine))
    emit_convolution(node, builder, pd, source, packed, epilogue, images)
    return True


def _with_height(convolution: Convolution) -> Convolution:
    """View a convolution over one axis as one over two, of which the first has length 1."""
    window = convolution.window
    plane = Window(
        (1, *window.kernel),
        (1, *window.strides),
        (1, *window.dilations),
        (0, *window.pads_begin),
        (0, *window.pads_end),
    )
    source, result = (
        (*shape[:2], 1, *shape[2:]) for shape in (convolution.source, convolution.result)
    )
    weights = (*convolution.weights[:-1], 1, convolution.weights[-1])
    return convolution._replace(source=source, weights=weights, result=result, window=plane)
