"""Weights of 4, 8 and 16 bits, read as they are packed (native/packed/)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .....runtime.graph import DType
from .reach import (
    FLOAT32,
    INT8,
    MOST_BYTES,
    MOST_PARTS,
    UINT8,
    UINT16,
    Reach,
    Rule,
    product,
    take,
)

__all__ = ["RULES"]


def _packed_chunks(inner: int, length: int, bits: int) -> tuple[int, int, int, int]:
    """Return blocks, bytes, chunks and the numbers of a chunk of a row of packed weights."""
    if bits not in (4, 8) or inner < 1 or not 1 <= length < MOST_BYTES or length * bits % 8:
        raise ValueError(f"rows of {inner} numbers of {bits} bits in blocks of {length}")
    chunk = 256 // bits
    if length < inner and length not in (16, 32) and length % chunk:
        raise ValueError(f"blocks of {length} numbers of {bits} bits in rows of {inner}")
    blocks = -(-inner // length)
    return blocks, product(blocks, length, bits) // 8, -(-inner // chunk), chunk


def _packed_weights(columns: int, blocks: int, row: int, has_zeros: int) -> list[Reach]:
    if has_zeros not in (0, 1):
        raise ValueError(f"weights with {has_zeros} zero points")
    zeros: list[Reach] = [(0, product(columns, blocks), INT8)] * has_zeros
    scales = (0, product(columns, blocks, 4), FLOAT32)
    return [(0, product(columns, row), UINT8), scales, *zeros]


def _order_rows(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, bits, parts = take(parameters, 4)
    _, _, chunks, chunk = _packed_chunks(inner, inner + inner % 2, bits)
    if not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{parts} parts")
    made = product(rows, chunks, chunk, 4)
    return [(0, product(rows, inner, 4), FLOAT32), (0, made, FLOAT32)]


def _packed_matmul(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, length, bits, has_zeros, has_bias, parts = take(parameters, 8)
    blocks, row, chunks, chunk = _packed_chunks(inner, length, bits)
    if has_bias not in (0, 1) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{has_bias} biases in {parts} parts")
    weights = _packed_weights(columns, blocks, row, has_zeros)
    bias: list[Reach] = [(0, product(columns, 4), FLOAT32)] * has_bias
    data = product(rows, chunks, chunk, 4)
    made = product(rows, columns, 4)
    return [(0, data, FLOAT32), *weights, *bias, (0, made, FLOAT32)]


def _stored_rows(rows: int, inner: int, bits: int) -> list[Reach]:
    if bits not in (4, 8) or inner < 1 or inner % (256 // bits):
        raise ValueError(f"rows of {inner} numbers for {bits} bits are no whole chunks")
    blocks = (0, product(rows, inner // 32, 4), FLOAT32)
    return [(0, product(rows, inner), INT8), blocks, blocks]


def _quantize_rows(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, bits, parts = take(parameters, 4)
    if not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{parts} parts")
    return [(0, product(rows, inner, 4), FLOAT32), *_stored_rows(rows, inner, bits)]


def _packed_matmul_int8(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, length, bits, has_zeros, has_bias, parts = take(parameters, 8)
    if has_bias not in (0, 1) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{has_bias} biases in {parts} parts")
    if length < 32 or length % 32 or inner % length:
        raise ValueError(f"blocks of {length} numbers in rows of {inner}")
    stored = _stored_rows(rows, inner, bits)
    weights = _packed_weights(columns, inner // length, inner * bits // 8, has_zeros)
    bias: list[Reach] = [(0, product(columns, 4), FLOAT32)] * has_bias
    return [*stored, *weights, *bias, (0, product(rows, columns, 4), FLOAT32)]


def _unpack_weights(parameters: Sequence[int]) -> list[Reach]:
    inner, columns, length, bits, has_zeros, first, count, parts = take(parameters, 8)
    blocks, row, chunks, chunk = _packed_chunks(inner, length, bits)
    if first < 0 or count < 0 or first + count > columns or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"rows {first} to {first + count} of {columns} in {parts} parts")
    made = product(count, chunks, chunk, 4)
    return [*_packed_weights(columns, blocks, row, has_zeros), (0, made, FLOAT32)]


def _half_matmul(parameters: Sequence[int]) -> list[Reach]:
    rows, inner, columns, stored, has_bias, parts = take(parameters, 6)
    if stored not in (DType.FLOAT16.value, DType.BFLOAT16.value):
        raise ValueError(f"weights of 16 bits that are of type {stored}")
    if has_bias not in (0, 1) or not 1 <= parts <= MOST_PARTS:
        raise ValueError(f"{has_bias} biases in {parts} parts")
    bias: list[Reach] = [(0, product(columns, 4), FLOAT32)] * has_bias
    data, weights = product(rows, inner, 4), product(columns, inner, 2)
    return [
        (0, data, FLOAT32),
        (0, weights, UINT16),
        *bias,
        (0, product(rows, columns, 4), FLOAT32),
    ]


RULES: Mapping[str, Rule] = {
    "half_matmul": _half_matmul,
    "order_rows": _order_rows,
    "packed_matmul": _packed_matmul,
    "packed_matmul_int8": _packed_matmul_int8,
    "quantize_rows": _quantize_rows,
    "unpack_weights": _unpack_weights,
}
