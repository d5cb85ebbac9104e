"""Parameters of the native kernels for fused elementwise operators and for ``where``. Pure.

A fused group begins with its first operand and takes steps, each with one more operand or none; all
operands broadcast to the result. The kernels walk the result's axes in the order in which they lie
in memory, as few of them as all operands allow. A blocked axis is two axes to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ....errors import GraphError
from ..native.step_runner import double_bits
from ..onednn.post_ops import PostOp
from .operand_layout import Layout

__all__ = [
    "FLOAT_STEPS",
    "INTEGER_STEPS",
    "check_broadcast",
    "elementwise_axes",
    "elementwise_parameters",
    "where_parameters",
]

_FLOAT = """
relu tanh elu square abs sqrt linear softplus hardsigmoid sigmoid exp gelu_tanh swish log clip pow
gelu_erf round mish hardswish floor ceil sign erf sin cos tan asin acos atan sinh cosh asinh acosh
atanh softsign celu selu thresholded shrink isnan isinf
add sub mul div max min power mod fmod prelu equal less less_or_equal greater greater_or_equal
"""
_INTEGER = """
abs neg sign invert not relu
add sub mul div max min power mod fmod prelu equal less less_or_equal greater greater_or_equal
and or xor shift_left shift_right
"""

FLOAT_STEPS = tuple(_FLOAT.split())
"""Steps on float32, numbered as in fused_steps.c; from ``add`` on they take an operand."""

INTEGER_STEPS = tuple(_INTEGER.split())
"""Steps on 64-bit integers, numbered as in fused_steps.c; from ``add`` on they take an operand."""

_NUMBERS = {
    "float_elementwise": {name: index for index, name in enumerate((*FLOAT_STEPS, "sum"))},
    "integer_elementwise": {name: index for index, name in enumerate(INTEGER_STEPS)},
}
_NUMBERS["float_elementwise"]["sum"] = FLOAT_STEPS.index("add")


class Axis(NamedTuple):
    """One axis of the walk: its length, and for each operand the stride in bytes."""

    length: int
    strides: tuple[int, ...]


def elementwise_parameters(
    kernel: str, layouts: Sequence[Layout], axes: Sequence[Axis], steps: Sequence[PostOp]
) -> list[int]:
    """Write the parameters of a fused group; see native_elementwise.c.

    ``layouts`` are those of the operands and, last, of the result; ``axes`` as
    ``elementwise_axes`` gives them. ``operand`` of a step counts in ``layouts``.
    """
    nothing = Axis(1, (0,) * len(layouts))
    axes = [*[nothing] * (2 - len(axes)), *axes]
    words = [len(layouts), len(axes), len(steps), *(axis.length for axis in axes)]
    for index, layout in enumerate(layouts):
        words += [layout.dtype.value, *(axis.strides[index] for axis in axes)]
    for step in steps:
        number = _NUMBERS[kernel][step.name]
        numbers = (step.alpha, step.beta)
        if kernel == "float_elementwise":
            words += [number, step.operand or 0, *map(double_bits, numbers)]
        else:
            words += [number, step.operand or 0, *map(int, numbers)]
    return words


def where_parameters(layouts: Sequence[Layout], axes: Sequence[Axis]) -> list[int]:
    """Write the parameters of ``where``: condition, two choices of one type, the result."""
    axes = axes or [Axis(1, (0,) * len(layouts))]
    words = [layouts[-1].dtype.item_bytes, len(axes), *(axis.length for axis in axes)]
    return [*words, *(stride for axis in axes for stride in axis.strides)]


def elementwise_axes(layouts: Sequence[Layout]) -> list[Axis] | None:
    """Return the axes to walk; the last layout is the result's, to which the others broadcast.

    None where strides cannot describe a layout: nested blocks, blocks with padding, or two
    operands with different blocks on one axis. Raises GraphError for what does not broadcast.
    """
    shape = layouts[-1].shape
    for layout in layouts:
        check_broadcast(layout.shape, shape)
    columns: list[list[_Split]] = []
    for layout in layouts:
        splits = _splits(layout)
        if splits is None:
            return None
        missing = len(shape) - len(splits)
        columns.append([_Split(0, 0, 0)] * missing + splits[max(0, -missing) :])
    axes: list[Axis] = []
    for number, length in enumerate(shape):
        found = _axes_of(length, [column[number] for column in columns], layouts)
        if found is None:
            return None
        axes += found
    axes.sort(key=lambda axis: -axis.strides[-1])
    return _merged(axes)


def check_broadcast(given: Sequence[int], shape: Sequence[int]) -> None:
    """Raise GraphError if an operand cannot be repeated to fill a shape.

    One of a single element may have more axes: exporters write bounds of Clip as lists.
    """
    pairs = zip(reversed(given), reversed(shape), strict=False)
    is_longer = len(given) > len(shape) and any(length != 1 for length in given)
    if is_longer or any(have not in (1, want) for have, want in pairs):
        raise GraphError(f"an operand of shape {list(given)} does not broadcast to {list(shape)}")


class _Split(NamedTuple):
    """Strides of one axis in elements; ``block`` 0: not blocked, and ``outer`` is the stride."""

    outer: int
    inner: int
    block: int


def _splits(layout: Layout) -> list[_Split] | None:
    strides = layout.strides
    if strides is not None:
        pairs = zip(layout.shape, strides, strict=True)
        return [_Split(0 if length == 1 else stride, 0, 0) for length, stride in pairs]
    blocked = layout.blocked_strides
    if blocked is None:
        return None
    axis, block, outer = blocked
    splits = [_Split(0 if n == 1 else s, 0, 0) for n, s in zip(layout.shape, outer, strict=True)]
    splits[axis] = _Split(outer[axis], 1, block)
    return splits


def _axes_of(length: int, splits: Sequence[_Split], layouts: Sequence[Layout]) -> list[Axis] | None:
    blocks = {split.block for split in splits if split.block}
    items = [layout.dtype.item_bytes for layout in layouts]
    pairs = list(zip(splits, items, strict=True))
    if not blocks:
        return [Axis(length, tuple(split.outer * item for split, item in pairs))]
    if len(blocks) > 1:
        return None
    (block,) = blocks
    outer = [split.outer if split.block else split.outer * block for split in splits]
    inner = [split.inner if split.block else split.outer for split in splits]
    return [
        Axis(length // block, tuple(s * item for s, item in zip(outer, items, strict=True))),
        Axis(block, tuple(s * item for s, item in zip(inner, items, strict=True))),
    ]


def _merged(axes: Sequence[Axis]) -> list[Axis]:
    merged: list[Axis] = []
    for axis in axes:
        if axis.length == 1:
            continue
        if merged and all(_continues(merged[-1], axis)):
            merged[-1] = Axis(merged[-1].length * axis.length, axis.strides)
        else:
            merged.append(axis)
    return merged


def _continues(outer: Axis, inner: Axis) -> Iterator[bool]:
    for a, b in zip(outer.strides, inner.strides, strict=True):
        yield a == b * inner.length
