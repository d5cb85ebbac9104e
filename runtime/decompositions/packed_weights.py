"""Matmuls with weights of few bits, packed in bytes and scaled in blocks."""

from __future__ import annotations

from ..graph import Value
from .composition import Composition, CompositionError
from .registry import decomposition

__all__ = ["packed_matmul"]


@decomposition("MatMulNBits")
def packed_matmul(made: Composition) -> list[Value]:
    """Data; weights as rows of blocks of bytes, their scales, zero points, order, a bias.

    The weights are unpacked by operators that fold where weights are constants.
    """
    given = made.node.attributes
    inner, columns = int(given["K"]), int(given["N"])
    bits, length = int(given.get("bits", 4)), int(given["block_size"])
    if bits not in (2, 4, 8) or length < 1 or inner < 1 or columns < 1:
        raise CompositionError(f"there are {bits} bits in blocks of {length}")
    data, scales = made.given(0), made.given(2)
    blocks = -(-inner // length)
    kind = made.dtype(scales).value
    packed = made.add("Reshape", made.given(1), made.integers(columns, -1))
    whole = made.add("Cast", _unpacked(made, packed, bits), to=kind)
    if made.optional(4) is not None:
        return [_with_bias(made, _in_order(made, whole, (inner, columns, blocks), bits, kind))]
    parts = made.add("Reshape", whole, made.integers(columns, blocks, length))
    middle = _points(made, (columns, blocks), bits, kind)
    factors = made.add("Reshape", scales, made.integers(columns, blocks, 1))
    real = made.add("Mul", made.add("Sub", parts, middle), factors)
    rows = made.add("Reshape", real, made.integers(columns, blocks * length))
    if blocks * length != inner:
        rows = _first(made, rows, inner)
    return [_with_bias(made, made.add("MatMul", data, made.add("Transpose", rows, perm=[1, 0])))]


def _with_bias(made: Composition, product: Value) -> Value:
    bias = made.optional(5)
    return product if bias is None else made.add("Add", product, bias)


def _in_order(
    made: Composition, whole: Value, sizes: tuple[int, int, int], bits: int, kind: int
) -> Value:
    """Multiply with weights of which an operand names the block, one for each row of them."""
    inner, columns, blocks = sizes
    order = made.add("Slice", made.given(4), made.integers(0), made.integers(inner))
    factors = made.add("Reshape", made.given(2), made.integers(columns, blocks))
    factors = made.add("Gather", factors, order, axis=1)
    middle = _points(made, (columns, blocks), bits, kind)
    if made.optional(3) is not None:
        middle = made.add("Reshape", middle, made.integers(columns, blocks))
        middle = made.add("Gather", middle, order, axis=1)
    rows = made.add("Mul", made.add("Sub", _first(made, whole, inner), middle), factors)
    return made.add("MatMul", made.given(0), made.add("Transpose", rows, perm=[1, 0]))


def _points(made: Composition, shape: tuple[int, int], bits: int, kind: int) -> Value:
    """Return what is subtracted from each block; without zero points the middle of the range."""
    points = made.optional(3)
    columns, blocks = shape
    if points is None:
        return made.number(float(1 << bits - 1), made.given(2))
    if made.dtype(points).is_floating:
        return made.add("Reshape", points, made.integers(columns, blocks, 1))
    packed = made.add("Reshape", points, made.integers(columns, -1))
    whole = _first(made, _unpacked(made, packed, bits), blocks)
    real = made.add("Cast", whole, to=kind)
    return made.add("Reshape", real, made.integers(columns, blocks, 1))


def _unpacked(made: Composition, packed: Value, bits: int) -> Value:
    """Give each number a byte of its own; the lowest bits of a byte come first."""
    if bits == 8:
        return packed
    mask = made.number((1 << bits) - 1, packed)
    last = made.integers(-1)
    parts = []
    for shift in range(0, 8, bits):
        moved = packed
        if shift:
            moved = made.add("BitShift", packed, made.number(shift, packed), direction="RIGHT")
        parts.append(made.add("Unsqueeze", made.add("BitwiseAnd", moved, mask), last))
    joined = made.add("Concat", *parts, axis=-1)
    rows = made.shape(packed)[0]
    if not isinstance(rows, int):
        raise CompositionError("the number of its rows is not known")
    return made.add("Reshape", joined, made.integers(rows, -1))


def _first(made: Composition, rows: Value, count: int) -> Value:
    """Keep the first numbers of each row."""
    ends = made.integers(0), made.integers(count), made.integers(1)
    return made.add("Slice", rows, *ends)
