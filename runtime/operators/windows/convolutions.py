"""Convolutions as matmuls over unfolded windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..plain_operators import Array, plain
from .window_views import Axis, offsets, pad, plan_axes, shifted

__all__ = ["conv", "conv_integer", "conv_transpose", "qlinear_conv"]

_ATTRIBUTES = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


@plain("Conv", since=11)
def conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Convolve. x: (N, C, ...), w: (M, C / group, ...), bias: (M,); gives (N, M, ...).

    Products are summed in float32 for the 16-bit types, else in the type of x.
    """
    axes = _check(x, w, group, kernel_shape, dilations, pads, strides, auto_pad)
    work = np.result_type(x.dtype, np.float32) if x.dtype.kind == "f" else x.dtype
    if x.dtype.kind == "V":  # ml_dtypes' bfloat16 and its like
        work = np.dtype(np.float32)
    out = _convolve(x.astype(work, copy=False), w.astype(work, copy=False), axes, group)
    if bias is not None:
        out += bias.astype(work, copy=False).reshape(-1, *[1] * len(axes))
    return out.astype(x.dtype, copy=False)


def _check(
    x: Array,
    w: Array,
    group: int,
    kernel_shape: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    strides: Sequence[int] | None,
    auto_pad: str,
) -> list[Axis]:
    """Refuse shapes that do not fit, and lay the windows."""
    if x.ndim < 3 or w.ndim != x.ndim:
        raise ValueError(f"x has shape {x.shape} and w {w.shape}; both need 3 or more axes")
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        raise ValueError(
            f"x has {x.shape[1]} channels, w is {w.shape} and group is {group}; w needs "
            f"{x.shape[1] / group:g} input channels and a multiple of {group} output channels"
        )
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        raise ValueError(f"kernel_shape is {list(kernel_shape)}, but w is {w.shape}")
    return plan_axes(
        x.shape[2:],
        w.shape[2:],
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
    )


def _convolve(x: Array, w: Array, axes: Sequence[Axis], group: int) -> Array:
    """Multiply the weights with unfolded windows, one image at a time to bound the memory."""
    counts = [axis.count for axis in axes]
    out = np.empty((x.shape[0], w.shape[0], *counts), x.dtype)
    if not out.size:
        return out
    padded = pad(x, axes, 0)
    rows, inner, points = w.shape[0] // group, math.prod(w.shape[1:]), math.prod(counts)
    weights = np.ascontiguousarray(w).reshape(group, rows, inner)
    for image in range(len(x)):
        columns = _unfold(padded[image : image + 1], axes).reshape(group, inner, points)
        np.matmul(weights, columns, out=out[image].reshape(group, rows, points))
    return out


def _unfold(padded: Array, axes: Sequence[Axis]) -> Array:
    """Copy the windows of one image into columns: (C, *kernel, *counts), C-contiguous."""
    channels = padded.shape[1]
    counts = tuple(axis.count for axis in axes)
    kernel_shape = tuple(axis.kernel for axis in axes)
    if all(size == 1 for size in kernel_shape):
        return np.ascontiguousarray(shifted(padded, axes, (0,) * len(axes)))
    columns = np.empty((channels, *kernel_shape, *counts), padded.dtype)
    for offset in offsets(axes):
        place: tuple[Any, ...] = (slice(None), *offset)
        columns[place] = shifted(padded, axes, offset)[0]
    return columns


@plain("ConvInteger", since=10, further=_ATTRIBUTES)
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    **attributes: Any,
) -> Array:
    """Convolve 8-bit integers exactly; gives int32."""
    out = _convolve_exactly(x, w, x_zero_point, w_zero_point, attributes)
    return out.astype(np.int64).astype(np.int32)


def _convolve_exactly(
    x: Array,
    w: Array,
    x_zero_point: Array | None,
    w_zero_point: Array | None,
    attributes: dict[str, Any],
) -> Array:
    # Sums of 8-bit products are exact in float64, whose products run in BLAS; integers' do not.
    wide_x, wide_w = x.astype(np.float64), w.astype(np.float64)
    if x_zero_point is not None:
        wide_x -= x_zero_point
    if w_zero_point is not None:
        wide_w -= w_zero_point.reshape(-1, *[1] * (w.ndim - 1))
    return np.asarray(conv(wide_x, wide_w, None, **attributes))


@plain("QLinearConv", since=10, further=_ATTRIBUTES)
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    bias: Array | None = None,
    **attributes: Any,
) -> Array:
    """Convolve quantized integers, and quantize the result; w may have a scale for each channel."""
    total = _convolve_exactly(x, w, x_zero_point, w_zero_point, attributes)
    per_channel = (1, -1, *[1] * (x.ndim - 2))
    if bias is not None:
        total += bias.reshape(per_channel)
    scale = x_scale * np.reshape(w_scale, per_channel) / y_scale
    limits = np.iinfo(y_zero_point.dtype)
    result = np.clip(total * scale + y_zero_point, limits.min, limits.max)
    rounded: Array = np.round(result)
    return rounded.astype(y_zero_point.dtype)


@plain("ConvTranspose", since=11)
def conv_transpose(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """Run a convolution backwards. x: (N, C, ...), w: (C, M / group, ...); gives (N, M, ...)."""
    rank = x.ndim - 2
    if x.ndim < 3 or w.ndim != x.ndim or x.shape[1] != w.shape[0] or w.shape[0] % group:
        raise ValueError(f"x of shape {x.shape} does not fit w of shape {w.shape}, group {group}")
    strides = strides or [1] * rank
    dilations = dilations or [1] * rank
    axes = [
        _transposed_axis(
            x.shape[2 + i],
            w.shape[2 + i],
            strides[i],
            dilations[i],
            (output_padding or [0] * rank)[i],
            (pads[i], pads[rank + i]) if pads else None,
            output_shape[i] if output_shape else None,
            auto_pad,
        )
        for i in range(rank)
    ]
    work = np.result_type(x.dtype, np.float32) if x.dtype.kind == "f" else np.dtype(np.float32)
    out = _fold(x.astype(work, copy=False), w.astype(work, copy=False), axes, group)
    if bias is not None:
        out = out + bias.astype(work, copy=False).reshape(-1, *[1] * rank)
    return out.astype(x.dtype, copy=False)


def _transposed_axis(
    length: int,
    size: int,
    stride: int,
    dilation: int,
    extra: int,
    pads: tuple[int, int] | None,
    wanted: int | None,
    auto_pad: str,
) -> Axis:
    """Lay one axis of the result: ``length`` is the result's, ``count`` the input's."""
    full = stride * (length - 1) + extra + (size - 1) * dilation + 1
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") and wanted is None:
        wanted = length * stride
    if wanted is not None and (pads is None or auto_pad in ("SAME_UPPER", "SAME_LOWER")):
        total = max(full - wanted, 0)
        small, large = total // 2, total - total // 2
        pads = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    begin, end = pads or (0, 0)
    made = wanted if wanted is not None else full - begin - end
    return Axis(made, size, stride, dilation, begin, end, length)


def _fold(x: Array, w: Array, axes: Sequence[Axis], group: int) -> Array:
    """Multiply, and add each position of all windows to where it lies in the result."""
    images, channels = x.shape[:2]
    made = w.shape[1]
    lengths = [axis.length for axis in axes]
    room = [
        max(axis.begin, 0)
        + max(axis.length, (axis.count - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1)
        for axis in axes
    ]
    folded = np.zeros((images, group * made, *room), x.dtype)
    rows = x.reshape(images, group, channels // group, math.prod(x.shape[2:]))
    weights = w.reshape(group, channels // group, made, *w.shape[2:])
    for offset in offsets(axes):
        place: tuple[Any, ...] = (..., *offset)
        matrix = weights[place].transpose(0, 2, 1)
        part = np.matmul(matrix, rows).reshape(images, group * made, *x.shape[2:])
        shifted(folded, axes, offset)[...] += part
    inner = [slice(axis.begin, axis.begin + n) for axis, n in zip(axes, lengths, strict=True)]
    return folded[(slice(None), slice(None), *inner)]
