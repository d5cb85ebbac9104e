"""Matmuls with constant weights of 4 or 8 bits, which are read as they are packed.

onnxruntime's MatMulNBits has weights as the native kernel wants them: a row of bytes for each
column of the result, in blocks that have a scale and, at will, a zero point. A DequantizeLinear in
front of a MatMul or Gemm says the same, and is packed likewise, once. Where data are stored
numbers, too, the matmul is one of int8 and left to the passes for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.rewriting.matching import dtype_of, is_standard, made_by, only_user
from .fusing import read_packed

__all__ = ["PackedFusion", "has_kernel"]

Array = np.ndarray[Any, Any]

_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
_STORED = {
    DType.UINT4: (4, 8),
    DType.INT4: (4, 0),
    DType.UINT8: (8, 128),
    DType.INT8: (8, 0),
}
"""Types of weights -> bits, and the middle of their range."""

_IN_INT8 = 4
"""The ``accuracy_level`` of MatMulNBits at which data may be rounded to 8 bits."""


@dataclass(frozen=True)
class _Packed:
    """Weights of a matmul: a row of bytes, and scales and zero points of its blocks, per column.

    Zero points count from the middle of the range.
    """

    inner: int
    length: int
    bits: int
    rows: Array
    scales: Array
    zeros: Array | None
    takes_int8: bool = False


class PackedFusion(Pass):
    """Make ``PackedMatMul`` of MatMulNBits, and of MatMul and Gemm with a DequantizeLinear.

    Inputs: data (..., inner), weights (columns, bytes), float32 scales (columns, blocks), int8 zero
    points (columns, blocks) and a float32 bias (columns) where there are some. Attributes:
    ``inner``, ``block_size``, ``bits``, and ``takes_int8`` if data may be rounded to 8 bits, which
    ``accuracy_level`` 4 says, and a kernel does so. What has an order of its own, zero points that
    are no whole numbers, or weights that are no constants or that others use stays as it is.
    """

    name = "packed weights"
    requires = frozenset({"topological order"})
    enters_bodies = False  # what runs in numpy knows ONNX only
    wanted_ops = frozenset({"DequantizeLinear", "MatMulNBits"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        for node in list(graph.nodes):
            if node.graph is not graph or node.user_kernel is not None:
                continue
            if dtype_of(node.inputs[0] if node.inputs else None) not in _FLOATS:
                continue
            if (node.domain, node.op_type) == ("com.microsoft", "MatMulNBits"):
                patch = _of_bits(node)
            elif is_standard(node, "MatMul", "Gemm"):
                patch = _of_dequantized(node)
            else:
                continue
            if patch is not None:
                yield patch


def has_kernel(inner: int, length: int, bits: int) -> bool:
    """True for blocks that the native kernel reads: it goes by 32 bytes. Pure."""
    if bits not in (4, 8) or inner < 1 or length < 1 or length * bits % 8:
        return False
    return length >= inner or length in (16, 32) or not length % (256 // bits)


def _has_int8_kernel(inner: int, length: int, bits: int) -> bool:
    return not (inner % (256 // bits) or length % 32 or inner % length)


def _of_bits(node: Node) -> GraphPatch | None:
    """Take the bytes of a MatMulNBits; None for what its decomposition is to say more about."""
    given = node.attributes
    inner, columns, length, bits = (
        int(given.get(name, default))
        for name, default in (("K", 0), ("N", 0), ("block_size", 0), ("bits", 4))
    )
    weights, scales, points, order, bias = (node.input_at(index) for index in range(1, 6))
    if not has_kernel(inner, length, bits) or columns < 1 or order is not None:
        return None
    blocks = -(-inner // length)
    row_bytes = blocks * length * bits // 8
    packed = _constant(weights, columns * row_bytes, DType.UINT8)
    factors = _constant(scales, columns * blocks, *_FLOATS)
    if packed is None or factors is None or not _is_row(bias, columns):
        return None
    zeros: Array | None = None
    if points is not None:
        stored = _constant(points, columns * -(-blocks * bits // 8), DType.UINT8)
        if stored is None:
            return None
        zeros = _unpacked(stored.reshape(columns, -1), bits)[:, :blocks]
    found = _Packed(
        inner,
        length,
        bits,
        packed.reshape(columns, row_bytes),
        factors.reshape(columns, blocks),
        None if zeros is None else (zeros.astype(np.int16) - (1 << bits - 1)).astype(np.int8),
        given.get("accuracy_level", 0) == _IN_INT8 and _has_int8_kernel(inner, length, bits),
    )
    return _patch(node, found, bias, ())


def _of_dequantized(node: Node) -> GraphPatch | None:
    """Pack what a DequantizeLinear makes of a constant for this matmul alone."""
    maker = made_by(node.input_at(1), "DequantizeLinear")
    if maker is None or only_user(maker.outputs[0]) is not node:
        return None
    if made_by(node.inputs[0], "DequantizeLinear") is not None:
        return None
    if not have_one_affinity((maker, node)) or maker.user_kernel is not None:
        return None
    if dtype_of(maker.outputs[0]) is not dtype_of(node.inputs[0]):
        return None
    bias = node.input_at(2)
    is_turned = bool(node.attributes.get("transB", 0))
    if is_standard(node, "Gemm"):
        numbers = [float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta")]
        if numbers != [1.0, 1.0] or node.attributes.get("transA", 0):
            return None
    found = _packed(maker, is_turned)
    if found is None or not _is_row(bias, len(found.rows)):
        return None
    return _patch(node, found, bias, (maker,))


def _packed(maker: Node, is_turned: bool) -> _Packed | None:
    """Bring weights, scales and zero points to one row for each column of the result."""
    stored, scale, zero = (maker.input_at(index) for index in range(3))
    kind = _STORED.get(dtype_of(stored) or DType.FLOAT32)
    if kind is None or stored is None or stored.constant is None or stored.constant.ndim != 2:
        return None
    if scale is None or scale.constant is None or (zero is not None and zero.constant is None):
        return None
    bits, middle = kind
    array = stored.constant if is_turned else stored.constant.T
    columns, inner = array.shape
    length = int(maker.attributes.get("block_size", 0))
    axis = int(maker.attributes.get("axis", 1)) % 2
    is_along_inner = axis == (1 if is_turned else 0)
    if bool(length) != is_along_inner and scale.constant.size != 1:
        return None
    if not length or scale.constant.size == 1:
        length = inner + inner % 2
    blocks = -(-inner // length) if inner else 0
    if not has_kernel(inner, length, bits) or columns < 1:
        return None
    factors = _numbers(scale.constant, (columns, blocks), is_turned)
    if factors is None:
        return None
    zeros = None
    if zero is not None and zero.constant is not None:
        points = _numbers(zero.constant, (columns, blocks), is_turned)
        if points is None:
            return None
        moved = points.astype(np.int16) - middle
        zeros = moved.astype(np.int8) if moved.any() else None
    elif middle:
        zeros = np.full((columns, blocks), -middle, np.int8)
    rows = np.zeros((columns, blocks * length), np.uint8)
    whole = array.astype(np.uint8 if middle else np.int8).view(np.uint8)
    rows[:, :inner] = whole if middle else (whole + (1 << bits - 1)) & ((1 << bits) - 1)
    if bits == 4:
        rows = rows[:, 0::2] | rows[:, 1::2] << 4
    return _Packed(inner, length, bits, rows, factors.astype(np.float32), zeros)


def _numbers(array: Array, shape: tuple[int, int], is_turned: bool) -> Array | None:
    """Give each block of each column its number; None for numbers that are none for each."""
    if array.size == 1:
        return np.broadcast_to(array.reshape(1, 1), shape)
    if array.ndim == 1 and shape == (array.size, 1):
        return array.reshape(shape)
    lying = array if is_turned else array.T
    return lying if array.ndim == 2 and lying.shape == shape else None


def _patch(node: Node, found: _Packed, bias: Value | None, others: tuple[Node, ...]) -> GraphPatch:
    patch = GraphPatch(f"read the weights of {node.op} {node.name!r} as they are packed")
    data = node.inputs[0]
    dtype = dtype_of(data)
    assert data is not None
    assert dtype is not None
    operands: list[Value | None] = [_in_float32(patch, node, data, (node,))]
    arrays = {
        "weights": found.rows,
        "scales": np.asarray(found.scales, np.float32),
        "zeros": found.zeros,
        "bias": None if bias is None else np.asarray(bias.constant, np.float32).reshape(-1),
    }
    for what, array in arrays.items():
        operands.append(None if array is None else _added(patch, f"{node.name}_{what}", array))
    while operands[-1] is None:
        operands.pop()
    attributes = {"inner": found.inner, "block_size": found.length, "bits": found.bits}
    if found.takes_int8:
        attributes["takes_int8"] = 1
    return read_packed(patch, node, operands, attributes, dtype, others)


def _in_float32(patch: GraphPatch, node: Node, value: Value, origin: tuple[Node, ...]) -> Value:
    if dtype_of(value) is DType.FLOAT32:
        return value
    assert isinstance(value.type, TensorType)
    made = Value(f"{value.name}_f32", TensorType(DType.FLOAT32, value.type.shape))
    attributes = {"to": DType.FLOAT32.value}
    patch.add(Node("Cast", [value], [made], attributes, name=f"{node.name}_widen"), node, origin)
    return made


def _added(patch: GraphPatch, name: str, array: Array) -> Value:
    kept = np.ascontiguousarray(array)
    made = Value(name, TensorType(DType.of(kept.dtype), kept.shape), kept)
    patch.add_constant(made)
    return made


def _constant(value: Value | None, count: int, *dtypes: DType) -> Array | None:
    """Return a constant of this many elements and one of these types."""
    array = None if value is None else value.constant
    if array is None or array.size != count or dtype_of(value) not in dtypes:
        return None
    return array


def _is_row(bias: Value | None, columns: int) -> bool:
    return bias is None or (bias.constant is not None and bias.constant.shape == (columns,))


def _unpacked(rows: Array, bits: int) -> Array:
    """Give each number a byte of its own; the lower half of a byte comes first."""
    if bits == 8:
        return rows
    return np.stack((rows & 15, rows >> 4), axis=-1).reshape(len(rows), -1)
