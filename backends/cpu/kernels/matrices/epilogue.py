"""Post-ops of a fused node as oneDNN wants them: attributes before, arguments after."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .....runtime.graph import Node, Value
from ...onednn.bindings import ARG, Attributes, Desc, PrimitiveDesc
from ...onednn.post_ops import PostOp, parse_post_ops
from ...plans.elementwise_parameters import check_broadcast
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ...plans.view_strides import reshaped_strides
from ..movement.copies import broadcast
from .parts import joined

__all__ = ["Epilogue", "repeated"]

Fit = Callable[[tuple[int, ...]], tuple[int, ...]]
"""Turns an operand's shape, of the result's rank, into the dims that the primitive sees.

They hold as many elements, or as many as the result: then the operand is repeated in memory.
"""


class _Term(NamedTuple):
    """The operand of a binary post-op: its place, and the dims it is seen in."""

    place: int
    value: Value
    dims: tuple[int, ...]
    is_in_parts: bool


class Epilogue:
    """The post-ops of one node that is being lowered.

    Use: make it, give ``attributes`` to the primitive descriptor, take ``result`` for the place to
    write to, and add ``arguments`` to what the primitive reads. ``post_ops`` are those to apply,
    by default the node's own. ``scales`` are mask and count of those of int8 weights.
    ``part_count`` is not 1 where the primitive takes the result in so many parts along its first
    axis (see parts.py): its descriptors are those of a part, and operands here are whole.
    """

    def __init__(
        self,
        node: Node,
        builder: PlanBuilder,
        fit: Fit | None = None,
        post_ops: Sequence[PostOp] | None = None,
        scales: tuple[int, int] = (0, 0),
        part_count: int = 1,
    ) -> None:
        self._part_count = part_count
        self._builder, self._node = builder, node
        self._terms: list[_Term] = []
        self._residual: Value | None = None
        self._shape = builder.shape(node.outputs[0])
        rank = len(self._shape)
        steps = parse_post_ops(node.attributes) if post_ops is None else post_ops
        applied: list[tuple[PostOp, Desc | None]] = []
        for index, post_op in enumerate(steps):
            if post_op.operand is None:
                applied.append((post_op, None))
                continue
            value = node.inputs[post_op.operand]
            assert value is not None
            if post_op.name == "sum" and self._may_write_over(value, post_op.operand):
                self._residual = value
                applied.append((post_op, None))
                continue
            shape = builder.shape(value)
            dims = (1,) * (rank - len(shape)) + shape
            dims = dims if fit is None else fit(dims)
            name = "add" if post_op.name == "sum" else post_op.name
            is_in_parts = part_count != 1 and dims[0] != 1
            wanted = self._wanted(value, dims, (1, *dims[1:]) if is_in_parts else dims)
            applied.append((PostOp.binary(name, post_op.operand), wanted))
            self._terms.append(_Term(index, value, dims, is_in_parts))
        self.attributes = Attributes(builder.engine, applied, *scales)

    def result(self, value: Value, pd: PrimitiveDesc) -> Operand:
        """Make the place of the result in the layout that the primitive has chosen."""
        desc = joined(pd.desc("dst"), self._part_count, self._builder.engine)
        layout = _layout_of(desc, self._builder.shape(value))
        if self._residual is None:
            return self._builder.result(value, layout)
        residual = self._builder.reordered(self._residual, layout.desc(self._builder.engine))
        made = self._builder.result(value, layout, over=residual)
        if made.buffer is not residual.buffer:
            self._builder.move(residual, made.viewed(residual.layout))
        return made

    def descs(self, pd: PrimitiveDesc) -> list[Desc]:
        """List the layouts of the operands that it takes in parts."""
        roles = [ARG.post_op(term.place) for term in self._terms if term.is_in_parts]
        return [pd.desc("exec_arg", role) for role in roles]

    def arguments(self, pd: PrimitiveDesc) -> dict[int, Operand]:
        """Return the operands of the binary post-ops, in the layouts that the primitive wants."""
        found: dict[int, Operand] = {}
        for term in self._terms:
            role = ARG.post_op(term.place)
            if self._is_repeated(term.value, term.dims):
                whole = repeated(term.value, self._shape, self._builder)
                found[role] = whole.viewed(Layout.plain(term.dims, whole.dtype))
            else:
                count = self._part_count if term.is_in_parts else 1
                desc = joined(pd.desc("exec_arg", role), count, self._builder.engine)
                found[role] = self._builder.reordered(term.value, desc)
        return found

    def _may_write_over(self, value: Value, place: int) -> bool:
        """True if the value dies here, and nothing else that the primitive reads lies there."""
        builder = self._builder
        if value.constant is not None or not builder.can_overwrite(builder.operand(value)):
            return False
        buffer = builder.operand(value).buffer
        others = (item for index, item in enumerate(self._node.inputs) if index != place)
        return all(
            item is None or item.constant is not None or builder.operand(item).buffer is not buffer
            for item in others
        )

    def _is_repeated(self, value: Value, dims: Sequence[int]) -> bool:
        return math.prod(dims) != math.prod(self._builder.shape(value))

    def _wanted(self, value: Value, dims: Sequence[int], seen: Sequence[int]) -> Desc:
        """Describe an operand of these dims, of which the primitive sees a part at a time.

        A constant row is as it is; kernels that are compiled take a whole tensor in the result's
        layout alone.
        """
        builder = self._builder
        is_row = sum(length != 1 for length in dims) < 2
        if (value.constant is not None and is_row) or self._is_repeated(value, dims):
            return builder.engine.desc(seen, builder.dtype(value))
        return builder.engine.any_desc(seen, builder.operand(value).dtype)


def repeated(value: Value, shape: Sequence[int], builder: PlanBuilder) -> Operand:
    """Return a value in row-major order, with its elements repeated to fill a larger shape.

    Axes of length 1 in front of those of the shape fall away.
    """
    given = builder.shape(value)
    front = max(0, len(given) - len(shape))
    if any(length != 1 for length in given[:front]):
        raise builder.contradiction(f"{list(given)} does not broadcast to {list(shape)}")
    given = given[front:]
    check_broadcast(given, shape)
    if value.constant is not None:
        array = value.constant.reshape(given)
        return builder.constant_operand(np.ascontiguousarray(np.broadcast_to(array, shape)))
    source = builder.plain(value)
    source = source.viewed(Layout.plain(given, source.dtype))
    made = builder.temporary(Layout.plain(shape, source.dtype))
    builder.copy(broadcast(source, shape), made)
    return made


def _layout_of(desc: Desc, shape: tuple[int, ...]) -> Layout:
    """View the primitive's result in the shape of its value."""
    strides = desc.strides if desc.dims != shape else None
    if strides is None:
        return Layout.of(desc)
    return Layout.plain(shape, desc.dtype, reshaped_strides(desc.dims, strides, shape))
