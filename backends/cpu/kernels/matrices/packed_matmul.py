"""Matmuls with weights of 4, 8 or 16 bits, which stay packed.

Of few rows a native kernel reads the packed weights once. In float32 each number costs a
conversion, which takes as long as reading 8 bits of it; where data may be rounded to 8 bits,
8 bits are multiplied and added up as they are. For many rows panels of weights are unpacked into
memory that fits a cache, one after another, and oneDNN multiplies with each, in float32. Those
of 16 bits are made for few rows alone.
"""

from __future__ import annotations

import math

from .....runtime.graph import DType, Node, Value
from ...onednn.bindings import ARG, Attributes
from ...onednn.post_ops import CPU_DOMAIN
from ...plans.operand_layout import Layout, Operand
from ...plans.plan_builder import PlanBuilder
from ..registry import kernel
from .half_matmul import lower_half_matmul

__all__ = ["MOST_ROWS", "chunks_of", "lower_packed_matmul"]

MOST_ROWS = 16
"""That the native kernel multiplies; for more, unpacking costs less than oneDNN gains."""
PANEL_BYTES = 1 << 21
"""Of unpacked weights, which are written and read again."""
FEWEST_COLUMNS = 64
"""Of a panel, so that oneDNN has enough to do with each."""
ELEMENTS_PER_THREAD = 1 << 16
"""Of weights that one thread reads in some ten microseconds, which waking another is worth."""


def chunks_of(inner: int, bits: int) -> tuple[int, int]:
    """Return how many chunks of 32 bytes a row of weights has, and the numbers in each. Pure."""
    chunk = 256 // bits
    return -(-inner // chunk), chunk


@kernel("PackedMatMul", domain=CPU_DOMAIN)
def lower_packed_matmul(node: Node, builder: PlanBuilder) -> None:
    """Lower what "packed weights" and "half matmuls" make; see these passes for its inputs."""
    data, weights, scales, zeros, bias = (node.input_at(index) for index in range(5))
    assert data is not None
    assert weights is not None
    if node.attributes["bits"] == 16:
        parts = _parts(builder, math.prod(builder.shape(weights)))
        lower_half_matmul(node, builder, data, weights, bias, parts)
        return
    assert scales is not None
    (result,) = node.outputs
    inner, length, bits = (int(node.attributes[key]) for key in ("inner", "block_size", "bits"))
    shape, columns = builder.shape(data), builder.shape(weights)[0]
    if not shape or shape[-1] != inner:
        raise builder.contradiction(f"there is no matmul of {list(shape)} and {inner} rows")
    builder.expect_shape(result, (*shape[:-1], columns))
    for value, wanted in ((scales, (columns, -(-inner // length))), (zeros, None), (bias, None)):
        if value is not None:
            own = (columns,) if value is bias else (columns, -(-inner // length))
            builder.expect_shape(value, wanted or own)
    rows = math.prod(shape[:-1])
    made = builder.result(result, Layout.plain(builder.shape(result), DType.FLOAT32))
    if rows == 0:
        return
    packed = [builder.plain(value) for value in (weights, scales, zeros) if value is not None]
    others = [] if bias is None else [builder.plain(bias)]
    if rows <= MOST_ROWS and node.attributes.get("takes_int8", 0):
        stored = _stored(builder, data, rows, inner, bits)
        words = (rows, inner, columns, length, bits, zeros is not None, bias is not None)
        parts = _parts(builder, inner * columns)
        builder.native("packed_matmul_int8", [*stored, *packed, *others, made], (*words, parts))
        return
    if rows <= MOST_ROWS:
        ordered = _ordered(builder, data, rows, inner, bits)
        parameters = (rows, inner, columns, length, bits, zeros is not None, bias is not None)
        parts = _parts(builder, inner * columns)
        builder.native("packed_matmul", [ordered, *packed, *others, made], (*parameters, parts))
        return
    ordered = _ordered(builder, data, rows, inner, bits)
    _multiply_panels(builder, node, ordered, packed, bias, made)


def _parts(builder: PlanBuilder, elements: int) -> int:
    is_worth_it = builder.thread_count > 1 and elements >= 2 * ELEMENTS_PER_THREAD
    return builder.thread_count if is_worth_it else 1


def _ordered(builder: PlanBuilder, data: Value, rows: int, inner: int, bits: int) -> Operand:
    """Emit what puts rows into the order in which the native kernels meet the weights."""
    chunks, chunk = chunks_of(inner, bits)
    made = builder.temporary(Layout.plain((rows, chunks * chunk), DType.FLOAT32))
    parts = _parts(builder, rows * inner)
    operands = (builder.plain(data, DType.FLOAT32), made)
    builder.native("order_rows", operands, (rows, inner, bits, parts))
    return made


def _stored(builder: PlanBuilder, data: Value, rows: int, inner: int, bits: int) -> list[Operand]:
    """Emit what stores rows in 8 bits, by a scale for each 32 numbers, with the sums of these.

    Their order is that of weights of ``bits``.
    """
    blocks = Layout.plain((rows, inner // 32), DType.FLOAT32)
    made = [
        builder.temporary(layout)
        for layout in (Layout.plain((rows, inner), DType.INT8), blocks, blocks)
    ]
    operands = (builder.plain(data, DType.FLOAT32), *made)
    builder.native("quantize_rows", operands, (rows, inner, bits, _parts(builder, rows * inner)))
    return made


def _multiply_panels(
    builder: PlanBuilder,
    node: Node,
    ordered: Operand,
    packed: list[Operand],
    bias: Value | None,
    made: Operand,
) -> None:
    """Emit, for some columns at a time, what unpacks their weights and what multiplies them."""
    inner, length, bits = (int(node.attributes[key]) for key in ("inner", "block_size", "bits"))
    rows, width = ordered.layout.shape
    columns = packed[0].layout.shape[0]
    engine = builder.engine
    step = min(columns, max(FEWEST_COLUMNS, PANEL_BYTES // (4 * width)))
    shifts = None if bias is None else builder.plain(bias)
    for first in range(0, columns, step):
        count = min(step, columns - first)
        panel = builder.temporary(Layout.plain((count, width), DType.FLOAT32))
        parts = _parts(builder, count * inner)
        words = (inner, columns, length, bits, len(packed) == 3, first, count, parts)
        builder.native("unpack_weights", [*packed, panel], words)
        turned = Layout((width, count), DType.FLOAT32, (1, width))
        target = Layout((rows, count), DType.FLOAT32, (columns, 1))
        row = Layout.plain((1, count), DType.FLOAT32)
        pd = engine.primitive_desc(
            "matmul",
            engine,
            ordered.layout.desc(engine),
            turned.desc(engine),
            None if shifts is None else row.desc(engine),
            target.desc(engine),
            Attributes(engine),
        )
        reads = {ARG.SRC: ordered, ARG.WEIGHTS: panel.viewed(turned)}
        if shifts is not None:
            reads[ARG.BIAS] = Operand(shifts.buffer, row, shifts.offset_bytes + 4 * first)
        place = made.offset_bytes + 4 * first
        builder.primitive(pd, reads, {ARG.DST: Operand(made.buffer, target, place)})
