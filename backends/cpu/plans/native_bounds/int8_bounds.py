"""What the native kernels for int8 touch of their operands. Pure.

The rules follow native/int8/ word by word.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from .....runtime.graph import DType
from ...native.int8_sizes import (
    FLAT,
    MAX_OTHERS,
    MAX_STEPS,
    MOST_LINES,
    MOST_TAPS,
    PANEL,
    SLACK,
    SQUARE_SLACK,
)
from ..elementwise_parameters import FLOAT_STEPS
from ..int8_words import WORD_COUNT, Int8Words, flat_line_bytes
from .reach import FLOAT32, INT8, INT32, MOST_PARTS, UINT8, Reach, Rule, product, take

__all__ = ["RULES", "has_places"]

_TYPES: Mapping[int, tuple[int, Collection[DType]]] = {
    DType.FLOAT32.value: (4, FLOAT32),
    DType.UINT8.value: (1, UINT8),
    DType.INT8.value: (1, INT8),
}
_MOST_LENGTH = 1 << 31


def _int8_product(parameters: Sequence[int]) -> list[Reach]:
    """Return the reach of each operand of a matmul of windows; ValueError for what is none."""
    words, types = _checked(parameters)
    panels = product(words.groups, -(-words.columns // PANEL))
    numbers = product(*words.window, words.channels)
    row = product(-(-numbers // 4), 12 if words.is_mixed else 4)
    if words.block_rows < 1:
        raise ValueError(f"blocks of {words.block_rows} rows")
    weights = [
        (0, product(words.chunk_count, 4 * PANEL), UINT8),
        (0, product(2 * panels + 1 + words.chunk_count, 4), INT32),
        (0, product(panels, 4 * PANEL), INT32),
    ]
    scratch = product(words.parts, product(words.block_rows, row) + SLACK)
    return _operands(words, types, weights, scratch)


def has_places(parameters: Sequence[int], numbers: np.ndarray[Any, np.dtype[np.int32]]) -> bool:
    """Look whether the chunks of a row are there that the weights of ``int8_product`` go with.

    The kernel does not look again. ``numbers`` are as native_int8.c has them.
    """
    words, _ = _checked(parameters)
    end_count = 2 * words.groups * -(-words.columns // PANEL) + 1
    ends, places = numbers[:end_count], numbers[end_count:]
    row = -(-words.window[0] * words.window[1] * words.channels // 4) * (3 if words.is_mixed else 1)
    is_inside = (places >= 0).all() and (places < row).all()
    return bool(
        ends[0] == 0 and (np.diff(ends) >= 0).all() and ends[-1] <= len(places) and is_inside
    )


def _int8_depthwise(parameters: Sequence[int]) -> list[Reach]:
    """Return the same where each channel is a group of its own."""
    words, types = _checked(parameters)
    taps = product(*words.window)
    is_apart = words.channels == words.columns == 1
    if not is_apart or taps > MOST_TAPS or words.is_mixed or words.chunk_count:
        raise ValueError(f"{taps} taps of channels that are apart, with {words}")
    chunks = product(-(-words.groups // PANEL), -(-taps // 2))
    weights = [(0, product(chunks, 4 * PANEL), UINT8)]
    return _operands(words, types, weights, words.groups)


def _int8_taps(parameters: Sequence[int]) -> list[Reach]:
    """Return the same of flat rows, for which scales and shifts are repeated like the weights."""
    words, types = _checked(parameters)
    taps, span = product(*words.window), (words.window[0] - 1) * words.dilations[0] + 1
    is_apart = words.channels == words.columns == 1
    if not is_apart or taps > MOST_TAPS or words.is_mixed or words.chunk_count:
        raise ValueError(f"{taps} taps of channels that are apart, with {words}")
    if span > MOST_LINES:
        raise ValueError(f"a window over {span} lines")
    product(words.strides[1], words.made_width + taps * words.dilations[1], words.groups)
    turns = words.groups // math.gcd(words.groups, FLAT)
    row = product(turns, FLAT, 4)
    weights = [
        (0, product(turns, FLAT, 4, -(-taps // 4)), UINT8),
        (0, row, INT32),
    ]
    scratch = product(words.parts, flat_line_bytes(words))
    source, *others = _operands(words, types, weights, scratch)
    return [source, *weights, (0, row, FLOAT32), (0, row, FLOAT32), *others[len(weights) + 2 :]]


def _int8_squares(parameters: Sequence[int]) -> list[Reach]:
    """Return the same for 3 x 3 by squares."""
    words, types = _checked(parameters)
    is_plain = (words.window, words.strides, words.dilations) == ((3, 3), (1, 1), (1, 1))
    if not is_plain or words.groups != 1 or words.is_mixed or words.chunk_count:
        raise ValueError(f"squares of a convolution with {words}")
    if words.channels % PANEL or words.block_rows < 1:
        raise ValueError(f"squares of {words.channels} channels in blocks of {words.block_rows}")
    weights = product(-(-words.columns // PANEL), PANEL, words.channels, 16 * 2)
    row = 2 * words.channels + 4 * PANEL
    part = 16 * (product(words.block_rows, row) + SQUARE_SLACK)
    scratch = product(words.parts, part) + words.channels
    return _operands(words, types, [(0, weights, UINT8)], scratch)


def _checked(parameters: Sequence[int]) -> tuple[Int8Words, Sequence[int]]:
    """Check what all of these kernels are given; return it with the types of other operands."""
    words = Int8Words.read(parameters)
    others, steps = words.other_count, words.step_count
    if not (0 <= others <= MAX_OTHERS and 0 <= steps <= MAX_STEPS):
        raise ValueError(f"{steps} steps with {others} operands")
    behind = take(parameters, WORD_COUNT + others + 4 * steps)[WORD_COUNT:]
    _check_steps(behind[others:], others)
    types = behind[:others]
    kinds = (*types, words.source_type, words.result_type)
    if any(kind not in _TYPES for kind in kinds) or words.source_type == DType.FLOAT32.value:
        raise ValueError(f"elements of the types {kinds}")
    if min(*words.window, *words.strides, *words.dilations) < 1 or min(words.pads) < 0:
        raise ValueError(f"a window of {words}")
    if min(words.groups, words.channels, words.columns) < 1 or words.is_mixed not in (0, 1):
        raise ValueError(f"a product of {words}")
    if not 1 <= words.parts <= MOST_PARTS:
        raise ValueError(f"{words.parts} parts")
    lengths = (*words[:5], *words.window, *words.strides, *words.dilations, *words.pads)
    if not -128 <= words.pad <= 255 or max(lengths) >= _MOST_LENGTH:
        raise ValueError(f"lengths of {words}")
    product(words.made_height, words.made_width, *words.strides)
    product(*words.window, *words.dilations)
    return words, types


def _check_steps(words: Sequence[int], others: int) -> None:
    first_binary = FLOAT_STEPS.index("add")
    for number, operand in zip(words[::4], words[1::4], strict=True):
        is_known = 0 <= number < len(FLOAT_STEPS)
        if not is_known or not (number >= first_binary) <= operand <= others:
            raise ValueError(f"step {number} with operand {operand}")


def _operands(
    words: Int8Words, types: Sequence[int], weights: Sequence[Reach], scratch: int
) -> list[Reach]:
    """Return what is touched around ``weights`` and that many bytes of scratch."""
    columns = product(words.groups, words.columns)
    if words.scale_count not in (1, columns):
        raise ValueError(f"{words.scale_count} scales of {columns} columns")
    count = product(words.images, words.made_height, words.made_width, columns)
    full = [(0, product(count, _TYPES[kind][0]), _TYPES[kind][1]) for kind in types]
    item, kinds = _TYPES[words.result_type]
    source = product(words.images, words.height, words.width, words.groups, words.channels)
    return [
        (0, source, _TYPES[words.source_type][1]),
        *weights,
        (0, product(words.scale_count, 4), FLOAT32),
        (0, product(columns, 4), FLOAT32),
        *full,
        (0, scratch, UINT8),
        (0, product(count, item), kinds),
    ]


RULES: Mapping[str, Rule] = {
    "int8_depthwise": _int8_depthwise,
    "int8_product": _int8_product,
    "int8_squares": _int8_squares,
    "int8_taps": _int8_taps,
}
