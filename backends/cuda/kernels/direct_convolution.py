"""Convolutions with channels last that are summed up directly, forwards or transposed.

A work-item has one channel of a place of the result; where each channel has a filter of its own, it
has a block of them. Neighbours are channels, so that they read neighbouring filters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....runtime.graph import Node
from ....runtime.lowering.window import Window
from ...accelerator.elementwise.c_types import C_TYPES, CType
from ...accelerator.elementwise.element_words import ElementWords
from ...accelerator.elementwise.fused_source import fused_code
from ...accelerator.elementwise.fused_step import parse_steps
from ...accelerator.kernels.epilogue import extra_operands
from ...accelerator.kernels.window_code import check_windows, nested_index, weight_place
from ...accelerator.launching.reach import whole
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from .channel_words import channel_words
from .window_launch import WindowTexts, launch_windows

__all__ = ["DirectSum", "launch_direct_sum"]


@dataclass(frozen=True)
class DirectSum:
    """What is summed up: ``filters`` lie as window, channel of a group, filter.

    ``loops`` go over what one result is made of, and name its places like ``window_code``.
    """

    label: str
    image: Operand
    filters: Operand
    groups: int
    window: Window
    loops: str

    @property
    def inner(self) -> int:
        """The channels of a group."""
        return self.filters.shape[-2]

    @property
    def outputs(self) -> int:
        """The channels of the result."""
        return self.filters.shape[-1]

    @property
    def is_each_alone(self) -> bool:
        """True if every channel has a filter of its own."""
        return self.inner == 1 and self.groups == self.outputs


def launch_direct_sum(node: Node, builder: PlanBuilder, made: Operand, parts: DirectSum) -> None:
    """Launch a convolution with its bias and all its steps."""
    window, kind = parts.window, C_TYPES[made.dtype]
    _check(builder, made, parts)
    words = channel_words(made.dtype, parts.outputs if parts.is_each_alone else 1)
    place, weight = nested_index("image", range(len(window.kernel))), weight_place(window)
    numbers: list[tuple[str, int]] = []
    if parts.is_each_alone:
        step = _products(words, place, weight)
    else:
        step = _sum_over_channels(kind, place, weight)
        numbers += ("channels", parts.image.shape[-1]), ("inner", parts.inner)
        numbers.append(("group", parts.outputs // parts.groups))
    value = node.input_at(2)
    bias = [] if value is None else [builder.operand(value)]
    if any(item.shape != (parts.outputs,) for item in bias):
        raise builder.contradiction(f"a bias of {list(bias[0].shape)} is not for {made.shape[-1]}")
    end = fused_code(parse_steps(node), extra_operands(node, builder), made.shape, "o", "made[j]")
    texts = WindowTexts(
        words.load("made", "bias", "block") if bias else words.filled("made", "0.0f"),
        parts.loops,
        step,
        words.each(
            f"const int o = (image * count + i) * {words.count} + j; "
            f"{' '.join(end.lines)} made[j] = {end.result};"
        ),
    )
    launch_windows(
        builder,
        parts.label,
        [("x", parts.image), ("w", parts.filters)],
        made,
        window,
        words,
        texts,
        numbers,
        [*[f"__global const {kind.memory} *bias"] * len(bias), *end.parameters],
        [*bias, *end.arguments],
        [*map(whole, bias), *end.reaches],
    )


def _check(builder: PlanBuilder, made: Operand, parts: DirectSum) -> None:
    """Raise GraphError unless channels, groups and windows belong together."""
    image, filters, window = parts.image, parts.filters, parts.window
    check_windows(builder, window, image.shape[1:-1], made.shape[1:-1])
    is_fit = filters.count == math.prod(window.kernel) * parts.inner * parts.outputs
    if (
        not is_fit
        or parts.groups < 1
        or parts.outputs % parts.groups
        or made.shape[-1] != parts.outputs
        or image.shape[-1] < parts.groups * parts.inner
        or (parts.is_each_alone and image.shape[-1] != parts.outputs)
    ):
        raise builder.contradiction(
            f"filters of {list(filters.shape)} in {parts.groups} groups do not make "
            f"{list(made.shape)} of {list(image.shape)}"
        )


def _products(words: ElementWords, place: str, weight: str) -> str:
    """Write the product of a block of channels with their own filters."""
    return " ".join(
        [
            words.load("v", "x", f"{place} * blocks + block"),
            words.load("f", "w", f"({weight}) * blocks + block"),
            words.each("made[j] += v[j] * f[j];"),
        ]
    )


def _sum_over_channels(kind: CType, place: str, weight: str) -> str:
    """Write the sum over the channels of a group, for the one result of a work-item."""
    return (
        f"const int from = {place} * channels + block / group * inner, at = ({weight}) * inner; "
        "for (int c = 0; c < inner; c++) "
        f"made[0] += {kind.load('x', 'from + c')} * {kind.load('w', '(at + c) * blocks + block')};"
    )
