"""What Conv and ConvTranspose ask oneDNN for, and the primitives that come of it.

All convolutions run with their channels innermost in memory where oneDNN is fast so: then
neighbours agree on the layout, and a network is reordered where it begins and ends. What oneDNN has
only in blocks of channels runs in the layout of its own choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_int
from typing import NamedTuple

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.window import Window
from ...onednn.bindings import (
    ARG,
    BINARY_ALGORITHMS,
    FORWARD_INFERENCE,
    Attributes,
    Desc,
    OneDnnError,
    PrimitiveDesc,
)
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..matrices.epilogue import Epilogue
from ..matrices.parts import joined, parts_of
from .convolution_choice import ConvolutionShape, has_split_vectors, is_slow, wanted_implementation
from .onednn_windows import dims_array, find_bad_window
from .pooling import channels_last

__all__ = [
    "CONVOLUTION_DIRECT",
    "Convolution",
    "bias_desc",
    "bias_of",
    "choose",
    "emit_convolution",
    "emit_epilogue",
    "find_refusal",
    "given_at",
    "groups_of",
    "is_trivial",
]

CONVOLUTION_DIRECT = 1


class Convolution(NamedTuple):
    """What oneDNN is asked for, but for the layouts. ``weights``: (groups,) M, C, ... of oneDNN."""

    call: str
    algorithm: int
    source: tuple[int, ...]
    weights: tuple[int, ...]
    result: tuple[int, ...]
    window: Window
    held: DType

    @property
    def work_of_an_image(self) -> int:
        """How many products are summed up for one image."""
        return (
            math.prod(self.result[1:]) * self.shape.input_channels * math.prod(self.window.kernel)
        )

    @property
    def shape(self) -> ConvolutionShape:
        """What an implementation is chosen by."""
        spatial = len(self.source) - 2
        groups = self.weights[0] if len(self.weights) > spatial + 2 else 1
        made, read, *size = self.weights[len(self.weights) - spatial - 2 :]
        return ConvolutionShape(groups, read, made, tuple(size), self.held is DType.FLOAT32)


def groups_of(
    node: Node, builder: PlanBuilder, shapes: Sequence[Sequence[int]], divided: Sequence[int]
) -> int:
    """Read the groups, and ask for shapes that one node can have; groups divide what is given."""
    groups = int(node.attributes.get("group", 1))
    source, weights, result = shapes
    is_known = len(source) == len(weights) == len(result) >= 3 and source[0] == result[0]
    kernel = node.attributes.get("kernel_shape")
    if kernel and tuple(kernel) != tuple(weights[2:]):
        is_known = False
    if not is_known or groups < 1 or any(count % groups for count in divided):
        raise builder.contradiction(
            f"weights of {list(weights)} in {groups} groups make no {list(result)} of "
            f"{list(source)}, with a window of {kernel or list(weights[2:])}"
        )
    bias = bias_of(node)
    if bias is not None:
        builder.expect_shape(bias, (result[1],))
    return groups


def given_at(node: Node, index: int) -> Value:
    """Return an input that is there."""
    value = node.inputs[index]
    assert value is not None
    return value


def bias_of(node: Node) -> Value | None:
    """Return the bias, if there is one."""
    return node.input_at(2)


def bias_desc(node: Node, builder: PlanBuilder) -> Desc | None:
    """Describe the bias, if there is one."""
    bias = bias_of(node)
    return None if bias is None else builder.engine.desc(builder.shape(bias), DType.FLOAT32)


def is_trivial(node: Node, convolution: Convolution, builder: PlanBuilder) -> bool:
    """Lower what has no elements, or sums none, and say so."""
    if 0 in convolution.result:
        builder.result(node.outputs[0], Layout.plain(convolution.result, convolution.held))
        return True
    if convolution.source[1]:
        return False
    _lower_empty_sum(node, convolution, builder)
    return True


def _lower_empty_sum(node: Node, convolution: Convolution, builder: PlanBuilder) -> None:
    """Convolve one channel of zeros: what remains is the bias, and what is fused."""
    images, _, *lengths = convolution.source
    weights = (convolution.result[1], 1, *convolution.window.kernel)
    one_channel = convolution._replace(source=(images, 1, *lengths), weights=weights)
    epilogue = Epilogue(node, builder)
    pd = choose(builder, one_channel, bias_desc(node, builder), epilogue.attributes)
    emit_convolution(
        node,
        builder,
        pd,
        _zeros(builder, pd.desc("src")),
        _zeros(builder, pd.desc("weights")),
        epilogue,
    )


def _zeros(builder: PlanBuilder, desc: Desc) -> Operand:
    array = np.zeros(desc.dims, np.float32)
    return builder.packed(array, builder.engine.desc(array.shape, DType.FLOAT32), desc)


def choose(
    builder: PlanBuilder, convolution: Convolution, bias: Desc | None, attributes: Attributes
) -> PrimitiveDesc:
    """Describe the primitive: channels last if that is fast, in the rules' implementation."""
    engine, dims = builder.engine, convolution.result
    last = channels_last(dims, convolution.held).desc(engine)
    try:
        pd = _describe(builder, convolution, bias, attributes, last)
    except OneDnnError:
        return _describe(
            builder, convolution, bias, attributes, engine.any_desc(dims, convolution.held)
        )
    if is_slow(pd.implementation):
        free = engine.any_desc(dims, convolution.held)
        return _describe(builder, convolution, bias, attributes, free)
    name = wanted_implementation(convolution.shape, has_split_vectors())
    if not name or pd.implementation.startswith(name):
        return pd
    for other in pd.others():
        if is_slow(other.implementation):
            break
        if other.implementation.startswith(name):
            return other
    return pd


def _describe(
    builder: PlanBuilder,
    convolution: Convolution,
    bias: Desc | None,
    attributes: Attributes,
    result: Desc,
) -> PrimitiveDesc:
    engine, window = builder.engine, convolution.window
    return engine.primitive_desc(
        convolution.call,
        engine,
        c_int(FORWARD_INFERENCE),
        c_int(convolution.algorithm),
        engine.any_desc(convolution.source, convolution.held),
        engine.any_desc(convolution.weights, convolution.held),
        bias,
        result,
        dims_array(window.strides),
        dims_array([step - 1 for step in window.dilations]),
        dims_array(window.pads_begin),
        dims_array(window.pads_end),
        attributes,
    )


def emit_convolution(
    node: Node,
    builder: PlanBuilder,
    pd: PrimitiveDesc,
    source: Operand,
    weights: Operand,
    epilogue: Epilogue,
    images: int = 1,
) -> None:
    """Emit the primitive; one for a single image, once for each of several."""
    bias, reads = bias_of(node), {ARG.SRC: source, ARG.WEIGHTS: weights}
    if bias is not None:
        reads[ARG.BIAS] = builder.reordered(bias, pd.desc("weights", 1))
    reads.update(epilogue.arguments(pd))
    made = epilogue.result(node.outputs[0], pd)
    whole = joined(pd.desc("dst"), images, builder.engine)
    writes = {ARG.DST: made.viewed(Layout.of(whole))}
    if images == 1:
        builder.primitive(pd, reads, writes)
        return
    reads, moves = parts_of(pd, reads, (ARG.WEIGHTS, ARG.BIAS))
    writes, moved = parts_of(pd, writes, ())
    builder.primitive(pd, reads, writes, images, {**moves, **moved})


def emit_epilogue(node: Node, builder: PlanBuilder, sums: Operand, epilogue: Epilogue) -> None:
    """Add the bias, or zeros, to what a convolution has made, and apply the post-ops."""
    engine, bias, dims = builder.engine, bias_of(node), sums.shape
    row = Layout.plain((1, dims[1], *(1 for _ in dims[2:])), DType.FLOAT32)
    if bias is None:
        added = builder.constant_operand(np.zeros(row.shape, np.float32))
    else:
        added = builder.plain(bias, DType.FLOAT32)
    desc = sums.layout.desc(engine)
    pd = engine.primitive_desc(
        "binary",
        engine,
        c_int(BINARY_ALGORITHMS["add"]),
        desc,
        row.desc(engine),
        desc,
        epilogue.attributes,
    )
    reads = {ARG.SRC: sums, ARG.SRC_1: added.viewed(row), **epilogue.arguments(pd)}
    made = epilogue.result(node.outputs[0], pd)
    builder.primitive(pd, reads, {ARG.DST: made.viewed(Layout.of(pd.desc("dst")))})


def find_refusal(node: Node) -> str | None:
    """Say why a Conv or ConvTranspose is not computed; None if it is."""
    return find_bad_window(node, node.inputs[1])
