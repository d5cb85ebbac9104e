"""Conv and ConvTranspose, in one, two and three dimensions.

Theory of operation. All convolutions run with their channels innermost in memory where oneDNN is
fast so: then neighbours agree on the layout, and a network is reordered where it begins and ends.
What oneDNN has only in blocks of channels runs in the layout of its own choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....runtime.graph import DType, Node, Value
from ..onednn import ARG, FORWARD_INFERENCE, Attributes, Desc, OneDnnError, PrimitiveDesc
from ..operand import Layout, Operand
from ..plan_builder import PlanBuilder
from ..post_ops import CPU_DOMAIN
from .convolution_choice import (
    ConvolutionShape,
    has_split_vectors,
    is_slow,
    wanted_implementation,
)
from .epilogue import Epilogue
from .pooling import channels_last
from .registry import kernel
from .windows import Window, auto_pad_of, dims_array, find_bad_window, window_of

__all__ = ["lower_conv", "lower_conv_transpose"]

Array = np.ndarray[Any, Any]

_CONVOLUTION_DIRECT = 1
_DECONVOLUTION_DIRECT = 0xA


def _refuses(node: Node) -> str | None:
    return find_bad_window(node, node.inputs[1])


@dataclass(frozen=True)
class _Convolution:
    """What oneDNN is asked for, but for the layouts. ``weights``: (groups,) M, C, ... of oneDNN."""

    call: str
    algorithm: int
    source: tuple[int, ...]
    weights: tuple[int, ...]
    result: tuple[int, ...]
    window: Window
    held: DType

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
    window = window_of(node, weight_shape[2:], shape[2:]).fitted(shape[2:], result_shape[2:])
    groups = int(node.attributes.get("group", 1))
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
    epilogue = Epilogue(node, builder)
    pd = _choose(builder, convolution, _bias_desc(node, builder), epilogue.attributes)
    packed = builder.reordered(weights, pd.desc("weights"))
    _emit(node, builder, pd, builder.reordered(source, pd.desc("src")), packed, epilogue)


@kernel("ConvTranspose", refuses=_refuses)
@kernel("ConvTranspose", domain=CPU_DOMAIN, refuses=_refuses)
def lower_conv_transpose(node: Node, builder: PlanBuilder) -> None:
    """Lower a transposed convolution; its weights are seen with their first two axes swapped."""
    source, weights, (result,) = _given(node, 0), _given(node, 1), node.outputs
    shape, result_shape = builder.shape(source), builder.shape(result)
    weight_shape = builder.shape(weights)
    groups = int(node.attributes.get("group", 1))
    window = _transposed_window(node, weight_shape[2:], shape[2:], result_shape[2:])
    seen = _transposed((*weight_shape[:2], *window.kernel), groups, DType.FLOAT32)
    convolution = _Convolution(
        "deconvolution_forward",
        _DECONVOLUTION_DIRECT,
        shape,
        seen.shape,
        result_shape,
        window,
        builder.held_dtype(result),
    )
    if _is_trivial(node, convolution, builder):
        return
    epilogue = Epilogue(node, builder)
    pd = _choose(builder, convolution, _bias_desc(node, builder), epilogue.attributes)
    wanted, size = pd.desc("weights"), window.kernel
    if weights.constant is not None:
        array = _longer_constant(builder, weights.constant, size)
        packed = builder.packed(array, seen.desc(builder.engine), wanted)
    else:
        operand = _longer(builder, builder.plain(weights), size)
        packed = builder.temporary(Layout.of(wanted))
        builder.move(operand.viewed(seen), packed)
    _emit(node, builder, pd, builder.reordered(source, pd.desc("src")), packed, epilogue)


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
    """See the weights (C, M / groups, ...) of ConvTranspose as oneDNN's (groups,) M, C, ..."""
    read, made, *size = shape
    grouped = Layout.plain((groups, read // groups, made, *size), dtype)
    assert grouped.strides is not None
    outer, inner, across, *rest = grouped.strides
    if groups == 1:
        return Layout.plain((made, read, *size), dtype, (across, inner, *rest))
    return Layout.plain((groups, made, read // groups, *size), dtype, (outer, across, inner, *rest))


def _transposed_window(
    node: Node, size: Sequence[int], lengths: Sequence[int], made: Sequence[int]
) -> Window:
    """Read a transposed window; its end is padded so that the result has the length it has.

    A result that goes on where no window writes has a negative end. As oneDNN takes only one that
    is shorter than a stride, the window gets longer, by elements whose weights are zeros.
    """
    plain = window_of(node, size, size)
    extra = node.attributes.get("output_padding") or [0] * len(size)
    is_same = auto_pad_of(node).startswith("SAME")
    is_centred = is_same or (
        node.attributes.get("output_shape") and not node.attributes.get("pads")
    )
    longer, begins, ends = list(size), [], []
    for axis, (length, stride) in enumerate(zip(lengths, plain.strides, strict=True)):
        full = stride * (length - 1) + plain.reach(axis)
        begin = plain.pads_begin[axis]
        if is_centred:
            total = max(0, full + extra[axis] - made[axis])
            begin = total // 2 if auto_pad_of(node) == "SAME_UPPER" else total - total // 2
        end = full - begin - made[axis]
        while end <= -stride:
            end += plain.dilations[axis]
            longer[axis] += 1
        begins.append(begin)
        ends.append(end)
    return Window(tuple(longer), plain.strides, plain.dilations, tuple(begins), tuple(ends))


def _given(node: Node, index: int) -> Value:
    value = node.inputs[index]
    assert value is not None
    return value


def _bias(node: Node) -> Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


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
    seen = replace(convolution, source=(images, 1, *lengths), weights=weights)
    epilogue = Epilogue(node, builder)
    pd = _choose(builder, seen, _bias_desc(node, builder), epilogue.attributes)
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
    other = _describe(builder, convolution, bias, attributes, last)
    while other.next_implementation() and not is_slow(other.implementation):
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
) -> None:
    bias, reads = _bias(node), {ARG.SRC: source, ARG.WEIGHTS: weights}
    if bias is not None:
        reads[ARG.BIAS] = builder.reordered(bias, pd.desc("weights", 1))
    reads.update(epilogue.arguments(pd))
    builder.primitive(pd, reads, {ARG.DST: epilogue.result(node.outputs[0], pd)})
