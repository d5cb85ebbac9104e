"""Convolutions of stored numbers: int8 sums, scaled for each channel, in one primitive."""

from __future__ import annotations

from ctypes import c_int

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.window import Window, window_of
from ...onednn.bindings import ARG, FORWARD_INFERENCE, OneDnnError, PrimitiveDesc
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout
from ...plans.plan_builder import PlanBuilder
from ...precision import has_native_int8
from ..matrices.epilogue import Epilogue
from ..matrices.native_int8 import lower_native_convolution
from ..registry import kernel
from .convolution_choice import is_slow
from .int8_taps import goes_by_taps, lower_taps
from .onednn_windows import dims_array
from .pooling import channels_last

__all__ = ["lower_int8_conv"]

_CONVOLUTION_DIRECT = 1


@kernel("Int8Conv", domain=CPU_DOMAIN, dtypes={DType.INT8, DType.UINT8})
def lower_int8_conv(node: Node, builder: PlanBuilder) -> None:
    """Lower what the pass "int8 fusion" makes of a Conv; see there for its inputs."""
    source, weights, shifts, scales = map(_given, node.inputs[:4])
    (result,) = node.outputs
    shape, result_shape = builder.shape(source), builder.shape(result)
    weight_shape = builder.shape(weights)
    groups = int(node.attributes.get("group", 1))
    if (
        not len(shape) == len(weight_shape) == len(result_shape)
        or groups < 1
        or weight_shape[0] % groups
        or (shape[0], shape[1], weight_shape[0])
        != (result_shape[0], weight_shape[1] * groups, result_shape[1])
    ):
        raise builder.contradiction(
            f"weights of {weight_shape} make no {result_shape} of {shape} in {groups} groups"
        )
    builder.expect_shape(shifts, (weight_shape[0],))
    (count,) = builder.shape(scales)
    if count != 1:
        builder.expect_shape(scales, (weight_shape[0],))
    instruction_set = builder.engine.instruction_set
    window = window_of(node, weight_shape[2:], shape[2:]).fitted(shape[2:], result_shape[2:])
    is_known = shifts.constant is not None and scales.constant is not None
    if is_known and goes_by_taps(weight_shape, groups, window, result_shape[-1], instruction_set):
        lower_taps(node, builder, window)
        return
    if has_native_int8(instruction_set):
        lower_native_convolution(node, builder, groups, window)
        return
    dims, mask = weight_shape, 0b1
    if groups > 1:
        dims, mask = (groups, weight_shape[0] // groups, *weight_shape[1:]), 0b11
    if count == 1:
        mask = 0
    epilogue = Epilogue(node, builder, scales=(mask, count))
    pd = _choose(node, builder, dims, window, epilogue)
    reads = {
        ARG.SRC: builder.reordered(source, pd.desc("src")),
        ARG.WEIGHTS: builder.reordered(weights, pd.desc("weights")),
        ARG.BIAS: builder.reordered(shifts, pd.desc("weights", 1)),
        ARG.WEIGHT_SCALES: builder.operand(scales),
        **epilogue.arguments(pd),
    }
    made = epilogue.result(result, pd)
    builder.primitive(pd, reads, {ARG.DST: made.viewed(Layout.of(pd.desc("dst")))})


def _choose(
    node: Node,
    builder: PlanBuilder,
    weights: tuple[int, ...],
    window: Window,
    epilogue: Epilogue,
) -> PrimitiveDesc:
    """Describe the primitive: channels last if that is fast."""
    engine, held = builder.engine, builder.held_dtype(node.outputs[0])
    source, result = builder.shape(_given(node.inputs[0])), builder.shape(node.outputs[0])
    chosen = None
    for dst in (channels_last(result, held).desc(engine), engine.any_desc(result, held)):
        try:
            chosen = engine.primitive_desc(
                "convolution_forward",
                engine,
                c_int(FORWARD_INFERENCE),
                c_int(_CONVOLUTION_DIRECT),
                engine.any_desc(source, builder.dtype(_given(node.inputs[0]))),
                engine.any_desc(weights, DType.INT8),
                engine.desc((result[1],), DType.FLOAT32),
                dst,
                dims_array(window.strides),
                dims_array([step - 1 for step in window.dilations]),
                dims_array(window.pads_begin),
                dims_array(window.pads_end),
                epilogue.attributes,
            )
        except OneDnnError:
            if chosen is None and dst.is_open:
                raise
            continue
        if not is_slow(chosen.implementation):
            break
    assert chosen is not None
    return chosen


def _given(value: Value | None) -> Value:
    assert value is not None
    return value
