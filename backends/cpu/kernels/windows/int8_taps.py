"""Depthwise convolutions of stored numbers by a native kernel, for CPUs with AVX-512 and VNNI.

oneDNN widens each tap of 16 channels to 32 bits; the kernel multiplies four taps of 64 numbers in
four instructions. Channels are innermost, and vectors go over the rows of a result wherever
channels begin: after a few vectors, where these are a multiple of 8, one begins with the first
again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType, Node
from .....runtime.lowering.window import Window
from ...native.int8_sizes import FLAT, MOST_LINES, MOST_TAPS
from ...plans.int8_words import Int8Words, flat_line_bytes
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..matrices.int8_operands import (
    channels_last,
    constant_of,
    given,
    laid_last,
    steps_of_node,
    two,
)
from ..matrices.int8_packing import PackedTaps, packed_taps

__all__ = ["goes_by_taps", "lower_taps"]

Array = np.ndarray[Any, Any]

_AVX512_VNNI = 0x67  # of dnnl_cpu_isa_t
_CHANNELS = 8
_FEW_TAPS, _FEW_CHANNELS = 9, 40
_WORK_PER_THREAD = 1 << 18
"""Products that take some ten microseconds, which waking a thread is worth."""


def goes_by_taps(
    weights: Sequence[int], groups: int, window: Window, width: int, instruction_set: int
) -> bool:
    """True for a depthwise convolution that the kernel has, and does faster than oneDNN. Pure.

    ``weights`` is their shape, ``width`` the result's last length. With strides few channels are
    copied place by place; and vectors whose channels come back once in a row read more weights
    than data.
    """
    if instruction_set & _AVX512_VNNI != _AVX512_VNNI or len(weights) not in (3, 4):
        return False
    if groups == 1 or weights[0] != groups or weights[1] != 1 or groups % _CHANNELS:
        return False
    taps, span = math.prod(window.kernel), window.reach(0) if len(window.kernel) == 2 else 1
    if taps > MOST_TAPS or span > MOST_LINES:
        return False
    if window.strides[-1] > 1 and taps <= _FEW_TAPS and groups < _FEW_CHANNELS:
        return False
    return groups <= FLAT or width * math.gcd(groups, FLAT) >= FLAT


def lower_taps(node: Node, builder: PlanBuilder, window: Window) -> None:
    """Lower an Int8Conv whose shapes are right, and whose scales and shifts are constants."""
    source, weights, shifts, scales = (given(node, index) for index in range(4))
    (result,) = node.outputs
    shape, made = builder.shape(source), builder.shape(result)
    array, groups = constant_of(weights), shape[1]
    data = laid_last(source, builder)
    is_signed = data.dtype is DType.INT8

    @functools.cache
    def packed() -> PackedTaps:
        return packed_taps(array.reshape(groups, -1), is_signed=is_signed)

    def ordered(row: Array) -> Operand:
        return builder.constant_operand(
            builder.derived(
                f"int8 row of {groups} by taps",
                (row,),
                lambda: np.broadcast_to(row.reshape(-1), groups)[packed().order],
            )
        )

    key = data.dtype.label
    layout = channels_last(made, builder.held_dtype(result))
    others, step_words = steps_of_node(
        node, builder, layout, lambda value: laid_last(value, builder)
    )
    work = math.prod(made) * math.prod(window.kernel)
    parts = builder.thread_count if work >= 2 * _WORK_PER_THREAD else 1
    words = Int8Words(
        shape[0],
        *two(shape[2:]),
        *two(made[2:]),
        two(window.kernel),
        two(window.strides),
        two(window.dilations),
        two(window.pads_begin, 0),
        pad=0,
        groups=groups,
        channels=1,
        columns=1,
        source_type=data.dtype.value,
        result_type=layout.dtype.value,
        is_mixed=0,
        chunk_count=0,
        scale_count=groups,
        block_rows=1,
        parts=parts,
        other_count=len(others),
        step_count=len(step_words) // 4,
    )
    scratch = builder.temporary(Layout.plain((parts * flat_line_bytes(words),), DType.UINT8))
    operands = [
        data,
        builder.constant_operand(
            builder.derived(f"int8 flat taps {key}", (array,), lambda: packed().weights)
        ),
        builder.constant_operand(
            builder.derived(f"int8 flat starts {key}", (array,), lambda: packed().starts)
        ),
        ordered(constant_of(scales)),
        ordered(constant_of(shifts)),
        *others,
        scratch,
        builder.result(result, layout),
    ]
    types = [other.dtype.value for other in others]
    builder.native("int8_taps", operands, (*words.flat(), *types, *step_words))
