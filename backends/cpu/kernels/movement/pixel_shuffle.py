"""Phases of a transposed convolution, brought to where they belong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .....runtime.graph import Node
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...plans.view_strides import ordered_strides
from ..registry import kernel

__all__ = ["LONG_RUN", "emit_shuffle", "lower_pixel_shuffle"]


LONG_RUN = 8
"""Phases along the last axis that are worth a loop of their own, where places are neighbours."""


class _Cut(NamedTuple):
    """Places of an axis that one copy moves: lengths, strides and first elements of both sides."""

    lengths: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    begin: int
    start: int


class _Axis(NamedTuple):
    """An axis: ``blocks``, each of ``phases`` places, of which ``made`` from ``cut`` on are kept.

    Strides are those of blocks and phases in the source, and of places in the target.
    """

    blocks: int
    phases: int
    cut: int
    made: int
    block_stride: int
    phase_stride: int
    stride: int

    def cuts(self) -> list[_Cut]:
        """List what copies can move at once, so that there are as few of them as can be.

        Those are whole blocks and the parts of blocks at both ends, or one phase after the other.
        """
        by_edges = list(self._edges())
        return by_edges if len(by_edges) <= self.phases else list(self._phases())

    def _edges(self) -> Iterator[_Cut]:
        (first, skipped), (stop, rest) = (
            divmod(place, self.phases) for place in (self.cut, self.cut + self.made)
        )
        if first == stop:
            yield self._part(first, skipped, rest)
            return
        if skipped:
            yield self._part(first, skipped, self.phases)
            first += 1
        if first < stop:
            lengths, source = (stop - first, self.phases), (self.block_stride, self.phase_stride)
            start = (first * self.phases - self.cut) * self.stride
            target = (self.phases * self.stride, self.stride)
            yield _Cut(lengths, source, target, first * self.block_stride, start)
        if rest:
            yield self._part(stop, 0, rest)

    def _part(self, block: int, first: int, stop: int) -> _Cut:
        begin = block * self.block_stride + first * self.phase_stride
        start = (block * self.phases + first - self.cut) * self.stride
        return _Cut((stop - first,), (self.phase_stride,), (self.stride,), begin, start)

    def _phases(self) -> Iterator[_Cut]:
        apart = self.phases * self.stride
        for phase in range(self.phases):
            first = -((phase - self.cut) // self.phases)
            stop = -((phase - self.cut - self.made) // self.phases)
            if first < stop:
                begin = first * self.block_stride + phase * self.phase_stride
                start = (first * self.phases + phase - self.cut) * self.stride
                yield _Cut((stop - first,), (self.block_stride,), (apart,), begin, start)


def _joined(parts: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable(parts))


@kernel("PixelShuffle", domain=CPU_DOMAIN, dtypes=None)
def lower_pixel_shuffle(node: Node, builder: PlanBuilder) -> None:
    """Lower (N, groups x phases x M / groups, ...) to (N, M, ...), its channels innermost.

    Attributes: ``group``; and a number for each axis behind M: ``phases``, and ``cut``, the places
    that are left out in front.
    """
    source, (result,) = node.inputs[0], node.outputs
    assert source is not None
    shape, wanted = builder.shape(source), builder.shape(result)
    phases, cut = tuple(node.attributes["phases"]), tuple(node.attributes["cut"])
    groups = int(node.attributes.get("group", 1))
    is_known = len(shape) == len(wanted) == len(phases) + 2 == len(cut) + 2 >= 3
    if not is_known or (shape[0], shape[1]) != (wanted[0], math.prod(phases) * wanted[1]):
        raise builder.contradiction(f"{shape} has no phases {phases} of {wanted}")
    if groups < 1 or wanted[1] % groups:
        raise builder.contradiction(f"{wanted} is not made by {groups} groups")
    for count, size, first, kept in zip(shape[2:], phases, cut, wanted[2:], strict=True):
        if size < 1 or first < 0 or first + kept > count * size:
            raise builder.contradiction(f"{kept} places from {first} on, of {count} x {size}")
    order = (0, *range(2, len(shape)), 1)
    operand = builder.operand(source)
    if operand.layout.strides is None:
        last = Layout.plain(shape, operand.dtype, ordered_strides(shape, order))
        operand = builder.reordered(source, last.desc(builder.engine))
    layout = Layout.plain(wanted, operand.dtype, ordered_strides(wanted, order))
    made = builder.result(result, layout)
    if made.layout.count:
        emit_shuffle(builder, operand, made, phases, cut, groups)


def emit_shuffle(
    builder: PlanBuilder,
    source: Operand,
    target: Operand,
    phases: Sequence[int],
    cut: Sequence[int],
    groups: int,
) -> None:
    """Emit the copies from (N, groups x phases x M / groups, ...) to (N, M, ...), both strided."""
    strides, steps = source.layout.strides, target.layout.strides
    assert strides is not None
    assert steps is not None
    channels = target.shape[1] // groups
    of_groups = strides[1] * channels * math.prod(phases), steps[1] * channels
    axes = [
        _Axis(
            source.shape[axis],
            phases[axis - 2],
            cut[axis - 2],
            target.shape[axis],
            strides[axis],
            strides[1] * channels * math.prod(phases[axis - 1 :]),
            steps[axis],
        )
        for axis in range(2, len(source.shape))
    ]
    is_last = steps[1] <= steps[-1] or phases[-1] < LONG_RUN
    for cuts in itertools.product(*(axis.cuts() for axis in axes)):
        outer, inner = (cuts, ()) if is_last else (cuts[:-1], cuts[-1:])
        lengths = (
            _joined(one.lengths for one in outer),
            (groups, channels),
            _joined(one.lengths for one in inner),
        )
        read = (
            _joined(one.source for one in outer),
            (of_groups[0], strides[1]),
            _joined(one.source for one in inner),
        )
        written = (
            _joined(one.target for one in outer),
            (of_groups[1], steps[1]),
            _joined(one.target for one in inner),
        )
        shape = (source.shape[0], *_joined(lengths))
        builder.copy(
            source.viewed(
                Layout.plain(shape, source.dtype, (strides[0], *_joined(read))),
                sum(one.begin for one in cuts),
            ),
            target.viewed(
                Layout.plain(shape, target.dtype, (steps[0], *_joined(written))),
                sum(one.start for one in cuts),
            ),
        )
