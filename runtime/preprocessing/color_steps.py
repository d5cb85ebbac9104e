"""Steps that change colours: reverse_channels and convert_color.

Source of the numbers: OpenVINO's NV12toRGB and I420toRGB (BT.601, video range), and its weights of
grey.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import TensorError
from ..graph import DType, Value
from .arithmetic import rounded
from .color_format import ColorFormat
from .layout import Layout
from .state import State, constant, integers

__all__ = ["convert_color", "reverse_channels"]

_THREE = (ColorFormat.RGB, ColorFormat.BGR)
_FOUR = (ColorFormat.RGBX, ColorFormat.BGRX)
_LUMA = (0.299, 0.587, 0.114)
_LAST = np.iinfo(np.int64).max
_NHWC = Layout("NHWC")


def reverse_channels(state: State) -> State:
    """Turn the order of the channels around."""
    axis = state.axis("C")
    ends = (integers(-1), integers(-_LAST - 1), integers(axis), integers(-1))
    return state.of(state.node("Slice", state.value, *ends))


def convert_color(state: State, wanted: ColorFormat) -> State:
    """Change the colour format; raises TensorError for a pair that OpenVINO lacks, too."""
    given = state.color
    if given is wanted:
        return state
    if given in _YUV and wanted in _THREE:
        return _from_yuv(state, wanted)
    if given in _THREE and wanted in _THREE:
        return replace(reverse_channels(state), color=wanted)
    if given in _THREE and wanted is ColorFormat.GRAY:
        return _to_gray(state)
    if given in _FOUR and wanted in _THREE:
        axis = integers(state.axis("C"))
        three = state.of(state.node("Slice", state.value, integers(0), integers(3), axis))
        is_turned = given.name[:3] != wanted.name
        return replace(reverse_channels(three) if is_turned else three, color=wanted)
    if given is ColorFormat.UNDEFINED:
        raise TensorError(
            f"the tensor's colours are not known, so they cannot become {wanted.name}; say what "
            f"they are with tensor().set_color_format(...)"
        )
    raise TensorError(
        f"{given.name} cannot become {wanted.name}; RGB, BGR, RGBX, BGRX, NV12 and I420 become RGB "
        f"or BGR, and RGB and BGR become GRAY"
    )


def _to_gray(state: State) -> State:
    axis, dtype = state.axis("C"), state.dtype
    value = state.value
    if not dtype.is_floating:
        value = state.node("Cast", value, to=DType.FLOAT32.value)
    weights = _LUMA if state.color is ColorFormat.RGB else _LUMA[::-1]
    shape = [3 if place == axis else 1 for place in range(state.rank)]
    floats = np.array(weights, np.float32 if not dtype.is_floating else dtype.numpy)
    weighed = state.node("Mul", value, constant(floats.reshape(shape)))
    made = state.node("ReduceSum", weighed, integers(axis), keepdims=1)
    if not dtype.is_floating:
        made = rounded(state, made, dtype)
    return state.of(made, color=ColorFormat.GRAY)


def _from_yuv(state: State, wanted: ColorFormat) -> State:
    if any(state.layout.of_rank(4) != _NHWC.names for _ in state.planes):
        raise TensorError(
            f"{state.color.name} pictures have the layout NHWC, not {state.layout}; give "
            f"tensor().set_layout('NHWC')"
        )
    dtype = replace(state, planes=state.planes[:1]).dtype
    if dtype not in (DType.UINT8, DType.FLOAT32):
        raise TensorError(
            f"{state.color.name} pictures are u8 or f32, not {dtype.label}; give "
            f"tensor().set_element_type('u8')"
        )
    planes = [
        value if dtype is DType.FLOAT32 else state.node("Cast", value, to=DType.FLOAT32.value)
        for value in state.planes
    ]
    bright, blue, red = _YUV[state.color](state, planes)
    luma = _scaled(state, bright, 16.0, 1.164)
    blues = (_scaled(state, blue, 128.0, 2.018), _scaled(state, blue, 128.0, 0.391))
    reds = (_scaled(state, red, 128.0, 1.596), _scaled(state, red, 128.0, 0.813))
    green = state.node("Sub", state.node("Sub", luma, blues[1]), reds[1])
    colors = [state.node("Add", luma, reds[0]), green, state.node("Add", luma, blues[0])]
    if wanted is ColorFormat.BGR:
        colors.reverse()
    joined = state.node("Concat", *colors, axis=3)
    if dtype is DType.UINT8:
        return state.of(rounded(state, joined, dtype), color=wanted)
    bounds = (constant(np.array(0.0, np.float32)), constant(np.array(255.0, np.float32)))
    return state.of(state.node("Clip", joined, *bounds), color=wanted)


def _scaled(state: State, value: Value, zero: float, factor: float) -> Value:
    shifted = state.node("Sub", value, constant(np.array(zero, np.float32)))
    return state.node("Mul", shifted, constant(np.array(factor, np.float32)))


def _nv12(state: State, planes: list[Value]) -> tuple[Value, Value, Value]:
    if len(planes) == 1:
        bright, rest = _above_and_below(state, planes[0])
        pairs = state.node("Reshape", rest, integers(0, 0, -1, 2))
    else:
        bright, pairs = planes
    blue, red = (
        state.node("Slice", pairs, integers(place), integers(place + 1), integers(3))
        for place in (0, 1)
    )
    return bright, _doubled(state, blue), _doubled(state, red)


def _i420(state: State, planes: list[Value]) -> tuple[Value, Value, Value]:
    if len(planes) == 1:
        bright, rest = _above_and_below(state, planes[0])
        # A row of the rest is two rows of a plane of half the width: first all of U, then all of V.
        width = state.node("Shape", rest, start=2, end=3)
        half = state.node("Div", width, integers(2))
        ends = (integers(0), integers(2), integers(-1))
        shape = state.node("Concat", *ends, half, axis=0)
        both = state.node("Reshape", rest, shape)
        blue, red = (
            state.node(
                "Transpose",
                state.node("Slice", both, integers(place), integers(place + 1), integers(1)),
                perm=[0, 2, 3, 1],
            )
            for place in (0, 1)
        )
    else:
        bright, blue, red = planes
    return bright, _doubled(state, blue), _doubled(state, red)


def _above_and_below(state: State, plane: Value) -> tuple[Value, Value]:
    """Cut a single plane after two thirds of its rows."""
    rows = state.node("Shape", plane, start=1, end=2)
    height = state.node("Div", state.node("Mul", rows, integers(2)), integers(3))
    above = state.node("Slice", plane, integers(0), height, integers(1))
    return above, state.node("Slice", plane, height, integers(_LAST), integers(1))


def _doubled(state: State, value: Value) -> Value:
    """Repeat every pixel twice in both directions."""
    scales = constant(np.array([2.0, 2.0], np.float32))
    return state.node(
        "Resize",
        value,
        None,
        scales,
        axes=[1, 2],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


_YUV = {
    ColorFormat.NV12_SINGLE_PLANE: _nv12,
    ColorFormat.NV12_TWO_PLANES: _nv12,
    ColorFormat.I420_SINGLE_PLANE: _i420,
    ColorFormat.I420_THREE_PLANES: _i420,
}
