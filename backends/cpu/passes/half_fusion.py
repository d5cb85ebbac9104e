"""Matmuls of few rows with constant weights of float16 or bfloat16, which are read as stored.

For a few rows a matmul takes as long as its weights take to be read, so half as many bytes are
worth a conversion of each number. For many rows oneDNN's matmul of what was widened once is
faster, and no weights are kept both ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ....runtime.graph import DType, Graph, Node, TensorType, Value
from ....runtime.graph.mapped_file import forget_pages, hold_pages
from ....runtime.passes import GraphPatch, Pass, have_one_affinity
from ....runtime.passes.rewriting.matching import dtype_of, is_standard, made_by, only_user
from .fusing import read_packed

__all__ = ["FEWEST_BYTES", "MOST_ROWS", "HalfFusion", "is_worth_it"]

Array = np.ndarray[Any, Any]

MOST_ROWS = 4
"""Measured: with more, the conversions cost what reading less gains."""
FEWEST_BYTES = 1 << 20
"""Of weights in 16 bits: what is smaller is no gain worth the mention."""
CACHED_BYTES = 1 << 25
"""Of all matmuls' weights in 16 bits: what a cache may hold between two runs. From there more than
one row takes longer than with float32, for its conversions; one row does not."""
_TURNED_COLUMNS = 64
"""Are written at a time, so that the lines that they are read from are read once."""

_HALVES = (DType.FLOAT16, DType.BFLOAT16)
_FLOATS = (DType.FLOAT32, *_HALVES)


def is_worth_it(rows: int, weight_bytes: int, all_bytes: int) -> bool:
    """True for a matmul that is no slower with weights of 16 bits than with widened ones. Pure.

    ``weight_bytes`` are those of its weights in 16 bits, ``all_bytes`` of all such matmuls.
    """
    most = MOST_ROWS if all_bytes > CACHED_BYTES else 1
    return 1 <= rows <= most and weight_bytes >= FEWEST_BYTES


class HalfFusion(Pass):
    """Make ``PackedMatMul`` of 16 bits of MatMul and Gemm with weights of float16 or bfloat16.

    Inputs: data (..., inner) in float32, weights (columns, inner) as uint16, and behind two that
    are left out a float32 bias (columns) where there is one. Attributes: ``inner``, ``block_size``,
    which is the same, ``bits`` and ``stored``, ONNX's number of the weights' type. A Cast that
    widens the weights goes. Taken are matmuls whose rows are known and few, of large weights that
    no other matmul uses: those are widened for that one.
    """

    name = "half matmuls"
    requires = frozenset({"topological order"})
    enters_bodies = False  # what runs in numpy knows ONNX only
    wanted_ops = frozenset({"MatMul", "Gemm"})

    def find(self, graph: Graph) -> Iterator[GraphPatch]:
        nodes = [node for node in graph.nodes if is_standard(node, "MatMul", "Gemm")]
        all_bytes = _bytes_of(nodes)
        for node in nodes if all_bytes else ():
            if node.graph is not graph or node.user_kernel is not None:
                continue
            patch = _patch(node, all_bytes)
            if patch is not None:
                yield patch


def _bytes_of(nodes: list[Node]) -> int:
    """Count what the constants take that matmuls read in 16 bits, or widened by a Cast."""
    found = {}
    for node in nodes:
        stored = _stored(node)
        if stored is not None and stored.constant is not None and dtype_of(stored) in _HALVES:
            found[stored] = stored.constant.nbytes
    return sum(found.values())


def _stored(node: Node) -> Value | None:
    cast = made_by(node.input_at(1), "Cast")
    return node.input_at(1) if cast is None else cast.input_at(0)


def _patch(node: Node, all_bytes: int) -> GraphPatch | None:
    data, given, bias = (node.input_at(index) for index in range(3))
    if data is None or given is None or dtype_of(data) not in _FLOATS:
        return None
    cast, stored = made_by(given, "Cast"), _stored(node)
    if cast is not None and not _is_ours_alone(cast, node):
        return None
    if stored is None or not _is_read_here_alone(stored, cast or node):
        return None
    is_turned = bool(node.attributes.get("transB", 0))
    sizes = _sizes(data, stored, is_turned)
    if sizes is None:
        return None
    rows, inner, columns = sizes
    if not is_worth_it(rows, 2 * inner * columns, all_bytes):
        return None
    if not _is_row(bias, columns) or not _is_plain(node):
        return None
    dtype = dtype_of(stored)
    assert dtype is not None
    assert stored.constant is not None
    patch = GraphPatch(f"read the weights of {node.op} {node.name!r} in 16 bits")
    arrays = {
        "weights": _columns(stored.constant, is_turned),
        "bias": None if bias is None else np.asarray(bias.constant, np.float32).reshape(-1),
    }
    operands: list[Value | None] = [_in_float32(patch, node, data)]
    for what, array in arrays.items():
        if array is not None:
            made = Value(
                f"{node.name}_{what}", TensorType(DType.of(array.dtype), array.shape), array
            )
            patch.add_constant(made)
            operands.extend([made] if what == "weights" else [None, None, made])
    attributes = {"inner": inner, "block_size": inner, "bits": 16, "stored": dtype.value}
    made_dtype = dtype_of(node.outputs[0])
    narrow = made_dtype if made_dtype in _HALVES else DType.FLOAT32
    others = () if cast is None else (cast,)
    return read_packed(patch, node, operands, attributes, narrow, others)


def _is_ours_alone(cast: Node, node: Node) -> bool:
    """True for a Cast to float32, of the device and the graph of the matmul that alone uses it."""
    if dtype_of(cast.outputs[0]) is not DType.FLOAT32 or cast.user_kernel is not None:
        return False
    return only_user(cast.outputs[0]) is node and have_one_affinity((cast, node))


def _is_read_here_alone(stored: Value, user: Node) -> bool:
    """True if no other node computes with the weights; a Gather takes rows of them as stored."""
    return not stored.is_graph_output and all(
        (other is user and place == (0 if user.op_type == "Cast" else 1))
        or is_standard(other, "Gather")
        for other, place in stored.uses
    )


def _sizes(data: Value, stored: Value, is_turned: bool) -> tuple[int, int, int] | None:
    """Return rows, inner and columns of a product with weights of 16 bits, if they are known."""
    array = stored.constant
    if array is None or array.ndim != 2 or dtype_of(stored) not in _HALVES:
        return None
    shape = data.type.shape if isinstance(data.type, TensorType) else None
    if not shape or not all(isinstance(length, int) for length in shape):
        return None
    columns, inner = array.shape if is_turned else array.shape[::-1]
    if shape[-1] != inner:
        return None
    return (
        math.prod(int(length) for length in shape[:-1] if isinstance(length, int)),
        inner,
        columns,
    )


def _is_plain(node: Node) -> bool:
    numbers = [float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta")]
    return numbers == [1.0, 1.0] and not node.attributes.get("transA", 0)


def _is_row(bias: Value | None, columns: int) -> bool:
    if bias is None:
        return True
    array = bias.constant
    return array is not None and array.size == columns and array.shape[-1:] == (columns,)


def _columns(stored: Array, is_turned: bool) -> Array:
    """Return the weights of each column in one piece, as they are where they lie so."""
    bits = stored.view(np.uint16)
    if is_turned:
        return bits
    hold_pages(stored)
    made = np.empty(bits.shape[::-1], np.uint16)
    for first in range(0, len(made), _TURNED_COLUMNS):
        made[first : first + _TURNED_COLUMNS] = bits[:, first : first + _TURNED_COLUMNS].T
    forget_pages(stored)
    return made


def _in_float32(patch: GraphPatch, node: Node, value: Value) -> Value:
    if dtype_of(value) is DType.FLOAT32:
        return value
    assert isinstance(value.type, TensorType)
    made = Value(f"{value.name}_f32", TensorType(DType.FLOAT32, value.type.shape))
    attributes = {"to": DType.FLOAT32.value}
    patch.add(Node("Cast", [value], [made], attributes, name=f"{node.name}_widen"), node, (node,))
    return made
