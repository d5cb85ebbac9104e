"""Conv and ConvTranspose, in one, two and three dimensions.

All convolutions run with their channels innermost in memory where oneDNN is fast so: then
neighbours agree on the layout, and a network is reordered where it begins and ends. What oneDNN has
only in blocks of channels runs in the layout of its own choice.

Some of its kernels are written for two axes only, or for strides of one. So a depthwise convolution
of one axis is seen as one of two, and where a transposed one would run uncompiled, zeros are put
between the elements of its input instead: that is what its strides mean.

oneDNN has no open lengths for them. Where a network's batch is open and one thread computes, a
primitive for one image is run for each (parts.py), and a new batch needs no other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import c_int
from typing import Any, NamedTuple

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.window import Window, transposed_window, window_of
from ...onednn.bindings import (
    ARG,
    BINARY_ALGORITHMS,
    FORWARD_INFERENCE,
    Attributes,
    Desc,
    OneDnnError,
    PrimitiveDesc,
)
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..matrices.epilogue import Epilogue
from ..matrices.parts import is_part, joined, parts_of
from ..registry import kernel
from .convolution_choice import (
    ConvolutionShape,
    has_split_vectors,
    is_slow,
    misapplies_epilogues,
    wanted_implementation,
)
from .folded_columns import emit_columns, goes_by_columns
from .onednn_windows import dims_array, find_bad_window
from .pooling import channels_last

__all__ = ["lower_conv", "lower_conv_transpose"]

Array = np.ndarray[Any, Any]

LEAST_WORK = 5_000_000
"""Products for an image, some 100 us: of less, what a call costs of its own would be seen."""

_CONVOLUTION_DIRECT = 1
_DECONVOLUTION_DIRECT = 0xA


def _refuses(node: Node) -> str | None:
    return find_bad_window(node, node.inputs[1])


class _Convolution(NamedTuple):
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


@kernel("Conv", refuses=_refuses)
@kernel("Conv", domain=CPU_DOMAIN, refuses=_refuses)
def lower_conv(node: Node, builder: PlanBuilder) -> None:
    """Lower a convolution; weights are packed into the layout that oneDNN chooses."""
    source, weights, (result,) = _given(node, 0), _given(node, 1), node.outputs
    shape, result_shape = builder.shape(source), builder.shape(result)
    weight_shape = builder.shape(weights)
    groups = _groups(node, builder, (shape, weight_shape, result_shape), weight_shape[:1])
    if shape[1] != weight_shape[1] * groups or result_shape[1] != weight_shape[0]:
        raise builder.contradiction(
            f"weights of {weight_shape} make no {result_shape} of {shape} in {groups} groups"
        )
    window = window_of(node, weight_shape[2:], shape[2:]).fitted(shape[2:], result_shape[2:])
    dims = weight_shape
    if groups > 1:
        dims = (groups, weight_shape[0] // groups, *weight_shape[1:])
    convolution = _Convolution(
        "convolution_forward",
        _CONVOLUTION_DIRECT,
        shape,
        dims,
        result_shape,
        window,
        builder.held_dtype(result),
    )
    if _is_trivial(node, convolution, builder):
        return
    if _lower_by_images(node, builder, convolution):
        return
    epilogue, bias = Epilogue(node, builder), _bias_desc(node, builder)
    pd = None
    if len(shape) == 3 and convolution.shape.is_depthwise:
        two_axes = Epilogue(node, builder, lambda dims: (*dims[:2], 1, *dims[2:]))
        pd = _choose(builder, _with_height(convolution), bias, two_axes.attributes)
        epilogue, pd = (epilogue, None) if pd.desc("dst").strides is None else (two_axes, pd)
    if pd is None:
        pd = _choose(builder, convolution, bias, epilogue.attributes)
    packed = builder.reordered(weights, pd.desc("weights"))
    _emit(node, builder, pd, builder.reordered(source, pd.desc("src")), packed, epilogue)


@kernel("ConvTranspose", refuses=_refuses)
@kernel("ConvTranspose", domain=CPU_DOMAIN, refuses=_refuses)
def lower_conv_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a transposed convolution; its weights are seen with their first two axes swapped."""
    source, weights, (result,) = _given(node, 0), _given(node, 1), node.outputs
    shape, result_shape = builder.shape(source), builder.shape(result)
    weight_shape = builder.shape(weights)
    groups = _groups(node, builder, (shape, weight_shape, result_shape), shape[1:2])
    if shape[1] != weight_shape[0] or result_shape[1] != weight_shape[1] * groups:
        raise builder.contradiction(
            f"weights of {weight_shape} make no {result_shape} of {shape} in {groups} groups"
        )
    given = transposed_window(node, weight_shape[2:], shape[2:], result_shape[2:])
    window = _longer_window(given)
    swapped = _transposed((*weight_shape[:2], *window.kernel), groups, DType.FLOAT32)
    convolution = _Convolution(
        "deconvolution_forward",
        _DECONVOLUTION_DIRECT,
        shape,
        swapped.shape,
        result_shape,
        window,
        builder.held_dtype(result),
    )
    if _is_trivial(node, convolution, builder):
        return
    epilogue, strides = Epilogue(node, builder), window.strides
    bias = _bias_desc(node, builder)
    has_epilogue = bias is not None or bool(node.attributes.get("post_ops"))
    constant = weights.constant if groups == 1 and convolution.held is DType.FLOAT32 else None
    if (
        constant is not None
        and constant.dtype == np.float32
        and goes_by_columns(given, weight_shape, shape, builder.engine.instruction_set)
    ):
        layout = channels_last(result_shape, DType.FLOAT32)
        made = builder.temporary(layout) if has_epilogue else builder.result(result, layout)
        emit_columns(builder, source, constant, given, made)
        if has_epilogue:
            _emit_epilogue(node, builder, made, epilogue)
        return
    pd = _choose(builder, convolution, bias, epilogue.attributes)
    spread = _spread(convolution)
    if _is_uncompiled(pd) and spread is not None:
        other = _choose(builder, spread, bias, epilogue.attributes)
        if not _is_uncompiled(other):
            pd, window, convolution = other, spread.window, spread
            swapped = _transposed((*weight_shape[:2], *window.kernel), groups, DType.FLOAT32)
    is_apart = has_epilogue and misapplies_epilogues(pd.implementation)
    if is_apart:
        pd = _choose(builder, convolution, None, Attributes(builder.engine))
    wanted, size = pd.desc("weights"), window.kernel
    if weights.constant is not None:
        array = _longer_constant(builder, weights.constant, size)
        packed = builder.packed(array, swapped.desc(builder.engine), wanted)
    else:
        operand = _longer(builder, builder.plain(weights), size)
        packed = builder.temporary(Layout.of(wanted))
        builder.move(operand.viewed(swapped), packed)
    if pd.desc("src").dims == shape:
        read = builder.reordered(source, pd.desc("src"))
    else:
        read = _with_zeros_between(builder.operand(source), builder, strides, pd.desc("src"))
    if is_apart:
        sums = builder.temporary(Layout.of(pd.desc("dst")))
        builder.primitive(pd, {ARG.SRC: read, ARG.WEIGHTS: packed}, {ARG.DST: sums})
        _emit_epilogue(node, builder, sums, epilogue)
    else:
        _emit(node, builder, pd, read, packed, epilogue)


def _lower_by_images(node: Node, builder: PlanBuilder, convolution: _Convolution) -> bool:
    """Lower it with a primitive for one image, if that is as fast and serves other batches."""
    images = convolution.source[0]
    if not builder.goes_by_rows or images == 1 or convolution.work_of_an_image < LEAST_WORK:
        return False
    one = convolution._replace(
        source=(1, *convolution.source[1:]), result=(1, *convolution.result[1:])
    )
    epilogue = Epilogue(node, builder, part_count=images)
    pd = _choose(builder, one, _bias_desc(node, builder), epilogue.attributes)
    if not all(map(is_part, (pd.desc("src"), pd.desc("dst"), *epilogue.descs(pd)))):
        return False
    packed = builder.reordered(_given(node, 1), pd.desc("weights"))
    source = builder.reordered(_given(node, 0), joined(pd.desc("src"), images, builder.engine))
    _emit(node, builder, pd, source, packed, epilogue, images)
    return True


def _groups(
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
    bias = _bias(node)
    if bias is not None:
        builder.expect_shape(bias, (result[1],))
    return groups


def _longer_constant(builder: PlanBuilder, array: Array, size: Sequence[int]) -> Array:
    """Append zeros to the windows of weights, if they are to be longer."""
    if array.shape[2:] == tuple(size):
        return array
    return builder.derived(f"windows of {list(size)}", (array,), lambda: _with_zeros(array, size))


def _longer(builder: PlanBuilder, weights: Operand, size: Sequence[int]) -> Operand:
    if weights.shape[2:] == tuple(size):
        return weights
    made = builder.temporary(Layout.plain((*weights.shape[:2], *size), weights.dtype))
    builder.numpy(
        lambda source, target: np.copyto(target, _with_zeros(source, size)), [weights, made]
    )
    return made


def _with_zeros(array: Array, size: Sequence[int]) -> Array:
    ends = [(0, new - old) for new, old in zip(size, array.shape[2:], strict=True)]
    return np.pad(array, [(0, 0), (0, 0), *ends])


def _transposed(shape: Sequence[int], groups: int, dtype: DType) -> Layout:
    """View the weights (C, M / groups, ...) of ConvTranspose as oneDNN's (groups,) M, C, ..."""
    read, made, *size = shape
    grouped = Layout.plain((groups, read // groups, made, *size), dtype)
    assert grouped.strides is not None
    outer, inner, across, *rest = grouped.strides
    if groups == 1:
        return Layout.plain((made, read, *size), dtype, (across, inner, *rest))
    return Layout.plain((groups, made, read // groups, *size), dtype, (outer, across, inner, *rest))


def _longer_window(window: Window) -> Window:
    """Return a transposed window with ends that oneDNN takes: above minus the stride.

    It gets longer where it has to, by elements whose weights are zeros.
    """
    longer, ends = list(window.kernel), list(window.pads_end)
    for axis, stride in enumerate(window.strides):
        while ends[axis] <= -stride:
            ends[axis] += window.dilations[axis]
            longer[axis] += 1
    return window._replace(kernel=tuple(longer), pads_end=tuple(ends))


def _spread(convolution: _Convolution) -> _Convolution | None:
    """View a transposed convolution as one without strides, of an input with zeros in between."""
    window, (images, channels, *lengths) = convolution.window, convolution.source
    if all(stride == 1 for stride in window.strides) or 0 in lengths:
        return None
    spread = [(n - 1) * stride + 1 for n, stride in zip(lengths, window.strides, strict=True)]
    window = _longer_window(window._replace(strides=(1,) * len(lengths)))
    weights = (*convolution.weights[: -len(lengths)], *window.kernel)
    source = (images, channels, *spread)
    return convolution._replace(source=source, weights=weights, window=window)


def _with_zeros_between(
    source: Operand, builder: PlanBuilder, strides: Sequence[int], desc: Desc
) -> Operand:
    """Emit an input that ``_spread`` has spread, in a layout."""
    layout = channels_last(desc.dims, desc.dtype)
    assert layout.strides is not None
    made = builder.temporary(layout)
    builder.native("fill", (made,), (layout.dtype.item_bytes, layout.count, 0))
    if source.layout.strides is None or source.dtype is not layout.dtype:
        dense = builder.temporary(channels_last(source.shape, layout.dtype))
        builder.move(source, dense)
        source = dense
    steps = [a * b for a, b in zip(layout.strides, (1, 1, *strides), strict=True)]
    builder.copy(source, made.viewed(Layout.plain(source.shape, layout.dtype, steps)))
    if layout.desc(builder.engine) == desc:
        return made.viewed(Layout.of(desc))
    moved = builder.temporary(Layout.of(desc))
    builder.move(made, moved)
    return moved


def _with_height(convolution: _Convolution) -> _Convolution:
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


def _is_uncompiled(pd: PrimitiveDesc) -> bool:
    """True for a loop over indices, which a transposed convolution may hand its work to."""
    return "ref:" in pd.implementation


def _given(node: Node, index: int) -> Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _bias(node: Node) -> Value | None:
    return node.input_at(2)


def _bias_desc(node: Node, builder: PlanBuilder) -> Desc | None:
    bias = _bias(node)
    return None if bias is None else builder.engine.desc(builder.shape(bias), DType.FLOAT32)


def _is_trivial(node: Node, convolution: _Convolution, builder: PlanBuilder) -> bool:
    """Lower what has no elements, or sums none, and say so."""
    if 0 in convolution.result:
        builder.result(node.outputs[0], Layout.plain(convolution.result, convolution.held))
        return True
    if convolution.source[1]:
        return False
    _lower_empty_sum(node, convolution, builder)
    return True


def _lower_empty_sum(node: Node, convolution: _Convolution, builder: PlanBuilder) -> None:
    """Convolve one channel of zeros: what remains is the bias, and what is fused."""
    images, _, *lengths = convolution.source
    weights = (convolution.result[1], 1, *convolution.window.kernel)
    one_channel = convolution._replace(source=(images, 1, *lengths), weights=weights)
    epilogue = Epilogue(node, builder)
    pd = _choose(builder, one_channel, _bias_desc(node, builder), epilogue.attributes)
    _emit(
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


def _choose(
    builder: PlanBuilder, convolution: _Convolution, bias: Desc | None, attributes: Attributes
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
    convolution: _Convolution,
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


def _emit(
    node: Node,
    builder: PlanBuilder,
    pd: PrimitiveDesc,
    source: Operand,
    weights: Operand,
    epilogue: Epilogue,
    images: int = 1,
) -> None:
    """Emit the primitive; one for a single image, once for each of several."""
    bias, reads = _bias(node), {ARG.SRC: source, ARG.WEIGHTS: weights}
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


def _emit_epilogue(node: Node, builder: PlanBuilder, sums: Operand, epilogue: Epilogue) -> None:
    """Add the bias, or zeros, to what a convolution has made, and apply the post-ops."""
    engine, bias, dims = builder.engine, _bias(node), sums.shape
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
