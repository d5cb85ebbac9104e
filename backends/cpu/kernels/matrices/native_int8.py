"""Matmuls and convolutions of stored numbers by native kernels, for CPUs without VNNI.

They are the int8 sums that oneDNN has for others, with the same scales, shifts and steps. Data and
results have their channels innermost. A convolution over one axis is one over two, of height 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .....runtime.graph import DType, Node, Value
from .....runtime.lowering.window import Window
from ...native.int8_sizes import CHUNK, MOST_TAPS, PANEL, SLACK, SQUARE_SLACK, TILE_ROWS
from ...plans.int8_words import Int8Words
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from .int8_operands import channels_last, constant_of, given, laid_last, steps_of_node, two
from .int8_packing import (
    fits_squares,
    packed_depthwise,
    packed_product,
    packed_squares,
)

__all__ = ["lower_native_convolution", "lower_native_matmul"]

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]

_BLOCK_BYTES = 1 << 17
"""Of data that are packed for a block of rows: they stay in a core's second cache."""
_SQUARE_BLOCK_BYTES, _MOST_SQUARES = 1 << 18, 48
"""Of squares at once, whose sums stay in the second cache, too."""
_LEAST_SQUARES = 32
_WORK_PER_THREAD = 1 << 20
"""Products that take some ten microseconds, which waking a thread is worth."""


@dataclass(frozen=True)
class _Product:
    """What a native kernel computes; lengths are those of two axes, channels those of a group."""

    images: int
    source: Pair
    made: Pair
    window: Pair
    strides: Pair
    dilations: Pair
    pads: Pair
    groups: int
    channels: int
    columns: int

    @property
    def is_depthwise(self) -> bool:
        is_apart = self.groups > 1 and self.channels == self.columns == 1
        return is_apart and math.prod(self.window) <= MOST_TAPS

    @property
    def numbers(self) -> int:
        """How many products are summed up for one number of the result."""
        return self.channels * math.prod(self.window)

    @property
    def rows(self) -> int:
        return self.images * math.prod(self.made)

    @property
    def work(self) -> int:
        """How many products there are."""
        return self.rows * self.groups * self.columns * self.numbers

    @property
    def squares(self) -> int:
        """How many squares of 2 x 2 the result is cut into."""
        return self.images * math.prod(-(-length // 2) for length in self.made)

    @property
    def suits_squares(self) -> bool:
        """True if 16 products for a square are a fifth fewer than 9 for each number of the result.

        With few squares a product is as fast, whose weights have a third of the bytes.
        """
        is_plain = self.window == (3, 3) and self.strides == self.dilations == (1, 1)
        is_full = self.groups == 1 and self.channels % PANEL == 0 and self.columns >= PANEL
        are_many = self.squares >= _LEAST_SQUARES
        return is_plain and is_full and are_many and self.squares * 16 * 5 <= self.rows * 9 * 4

    @property
    def block_of_squares(self) -> int:
        wanted = _SQUARE_BLOCK_BYTES // self.bytes_of_squares(1)
        return max(min(wanted, self.squares, _MOST_SQUARES) // TILE_ROWS, 1) * TILE_ROWS

    def bytes_of_squares(self, count: int) -> int:
        """Return what a part needs for that many squares: their data, and sums of a panel."""
        return 16 * (count * (2 * self.channels + 4 * PANEL) + SQUARE_SLACK)


def lower_native_matmul(
    node: Node, builder: PlanBuilder, rows: int, sizes: Pair, *, is_turned: bool
) -> None:
    """Lower an Int8MatMul whose shapes are right; ``sizes`` are those of a row and of a result's.

    ``is_turned``: weights have a row for each column.
    """
    inner, columns = sizes
    source, weights, (result,) = given(node, 0), given(node, 1), node.outputs
    one = (1, 1)
    product = _Product(1, (1, rows), (1, rows), one, one, one, (0, 0), 1, inner, columns)
    array = constant_of(weights)

    def arranged() -> Array:
        return (array if is_turned else array.T)[np.newaxis]

    layout = Layout.plain(builder.shape(result), builder.held_dtype(result))
    _emit(node, builder, product, arranged, builder.plain(source), layout, builder.plain)


def lower_native_convolution(node: Node, builder: PlanBuilder, groups: int, window: Window) -> None:
    """Lower an Int8Conv of one or two axes whose shapes are right."""
    source, weights, (result,) = given(node, 0), given(node, 1), node.outputs
    shape, made, array = builder.shape(source), builder.shape(result), constant_of(weights)
    product = _Product(
        shape[0],
        two(shape[2:]),
        two(made[2:]),
        two(window.kernel),
        two(window.strides),
        two(window.dilations),
        two(window.pads_begin, 0),
        groups,
        array.shape[1],
        array.shape[0] // groups,
    )

    def arranged() -> Array:
        last = np.moveaxis(array, 1, -1)
        return last.reshape(groups, product.columns, product.numbers)

    def laid(value: Value) -> Operand:
        return laid_last(value, builder)

    layout = channels_last(made, builder.held_dtype(result))
    _emit(node, builder, product, arranged, laid(source), layout, laid)


class _Packed(NamedTuple):
    """A kernel, the weights that it reads, and the scratch that it writes."""

    kernel: str
    operands: Sequence[Operand]
    scratch_bytes: int
    block_rows: int = 1
    is_mixed: bool = False
    chunk_count: int = 0


def _packed(
    product: _Product,
    parts: int,
    is_signed: bool,
    array: Array,
    arranged: Callable[[], Array],
    derived: Callable[[str, Callable[[], Array]], Operand],
    is_derived: Callable[[str, Callable[[], bool]], bool],
) -> _Packed:
    """Choose a kernel and pack weights for it; see ``_emit``."""
    if product.is_depthwise:
        taps = derived("int8 taps", lambda: packed_depthwise(arranged()[:, 0]))
        return _Packed("int8_depthwise", [taps], product.groups)
    if product.suits_squares and is_derived("int8 fits", lambda: fits_squares(array)):
        squares = derived("int8 squares", lambda: packed_squares(array))
        block_rows = product.block_of_squares
        scratch_bytes = parts * product.bytes_of_squares(block_rows) + product.channels
        return _Packed("int8_squares", [squares], scratch_bytes, block_rows)
    made = functools.cache(lambda: packed_product(arranged(), is_signed=is_signed))
    chunks = derived("int8 chunks", lambda: made().weights)
    places = derived("int8 places", lambda: made().places)
    starts = derived("int8 starts", lambda: made().starts)
    is_mixed = is_derived("int8 mixed", lambda: made().is_mixed)
    row_bytes = -(-product.numbers // CHUNK) * CHUNK * (3 if is_mixed else 1)
    block_rows = max(_BLOCK_BYTES // row_bytes // TILE_ROWS, 1) * TILE_ROWS
    return _Packed(
        "int8_product",
        [chunks, places, starts],
        parts * (block_rows * row_bytes + SLACK),
        block_rows,
        is_mixed,
        chunks.layout.count // (CHUNK * PANEL),
    )


def _emit(
    node: Node,
    builder: PlanBuilder,
    product: _Product,
    arranged: Callable[[], Array],
    source: Operand,
    layout: Layout,
    laid: Callable[[Value], Operand],
) -> None:
    """Emit the kernel; ``arranged`` gives weights (groups, columns, numbers), ``laid`` operands."""
    weights, shifts, scales = (given(node, index) for index in (1, 2, 3))
    key = f"{product.groups} {product.numbers} {source.dtype.label} {node.attributes.get('transB')}"
    array = constant_of(weights)

    def derived(what: str, compute: Callable[[], Array]) -> Operand:
        return builder.constant_operand(builder.derived(f"{what} {key}", (array,), compute))

    def is_derived(what: str, compute: Callable[[], bool]) -> bool:
        return bool(builder.derived(f"{what} {key}", (array,), lambda: np.array(compute())))

    parts = builder.thread_count if product.work >= 2 * _WORK_PER_THREAD else 1
    is_signed = source.dtype is DType.INT8
    packed = _packed(product, parts, is_signed, array, arranged, derived, is_derived)
    others, step_words = steps_of_node(node, builder, layout, laid)
    scales_row = _row(builder, scales, product.groups * product.columns)
    result = builder.result(node.outputs[0], layout)
    words = Int8Words(
        product.images,
        *product.source,
        *product.made,
        product.window,
        product.strides,
        product.dilations,
        product.pads,
        pad=0,
        groups=product.groups,
        channels=product.channels,
        columns=product.columns,
        source_type=source.dtype.value,
        result_type=result.dtype.value,
        is_mixed=int(packed.is_mixed),
        chunk_count=packed.chunk_count,
        scale_count=scales_row.layout.count,
        block_rows=packed.block_rows,
        parts=parts,
        other_count=len(others),
        step_count=len(step_words) // 4,
    )
    types = [other.dtype.value for other in others]
    scratch = builder.temporary(Layout.plain((packed.scratch_bytes,), DType.UINT8))
    builder.native(
        packed.kernel,
        [source, *packed.operands, scales_row, builder.plain(shifts), *others, scratch, result],
        (*words.flat(), *types, *step_words),
    )


def _row(builder: PlanBuilder, scales: Value, count: int) -> Operand:
    """Return the scales, one for each column where they are known."""
    array = scales.constant
    if array is None or array.size == count:
        return builder.plain(scales)
    made = builder.derived(f"int8 {count} scales", (array,), lambda: np.repeat(array, count))
    return builder.constant_operand(made)
