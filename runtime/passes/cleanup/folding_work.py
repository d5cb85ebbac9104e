"""How much work it is to compute a node of constants, predicted before it is done.

Work is counted in elements that a numpy function touches, about a nanosecond each. What onnx's
reference computes in Python's loops costs thousands of them for each element, and where the content
of inputs decides how often a loop turns, there is no number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from ...graph import Node
from .result_size import resized_shape

__all__ = ["predict_work"]

_Count = Callable[[Node, int, int], float]
"""``count(node, elements read, elements made)``"""

_TOUCHED = 8
"""How often a plain function touches an element: copies, temporaries, several inputs."""
_CALL = 1 << 15
"""A few calls of numpy from Python: what a turn of a Python loop costs."""
_MULTIPLY = 1 / 32
"""A multiplication and addition within a matmul by BLAS, which has two types."""
_SLOW_MULTIPLY = 2


def predict_work(node: Node, made: int) -> float | None:
    """Return what it costs to compute a node whose inputs are constants; None if it is not known.

    made: how many elements it makes.
    """
    if node.domain or node.op_type in _UNBOUNDED or node.op_type in _WINDOWS:
        return None
    read = sum(array.size for array in _constants(node) if array is not None)
    try:
        return _COUNTS.get(node.op_type, _touch)(node, read, made)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def _constants(node: Node) -> list[np.ndarray | None]:
    return [None if value is None else value.constant for value in node.inputs]


def _array(node: Node, index: int) -> np.ndarray:
    array = _constants(node)[index]
    if array is None:
        raise ValueError(f"input {index} of {node.name!r} is no constant")
    return array


def _touch(_node: Node, read: int, made: int) -> float:
    return _TOUCHED * (read + made)


def _loop(_node: Node, read: int, made: int) -> float:
    return _CALL * (read + made)


def _sort(_node: Node, read: int, made: int) -> float:
    return _TOUCHED * (read + made) * max(math.log2(max(read, 1)), 1)


def _product(depth_of: Callable[[Node], int]) -> _Count:
    def count(node: Node, read: int, made: int) -> float:
        is_fast = _array(node, 0).dtype in (np.float32, np.float64)
        cost = _MULTIPLY if is_fast else _SLOW_MULTIPLY
        return made * depth_of(node) * cost + _TOUCHED * (read + made)

    return count


def _last_axis(node: Node) -> int:
    return int(_array(node, 0).shape[-1]) if _array(node, 0).ndim else 1


def _gemm_depth(node: Node) -> int:
    return int(_array(node, 0).shape[0 if node.attributes.get("transA", 0) else 1])


def _einsum(node: Node, read: int, made: int) -> float:
    """Count all pairs of indices: numpy's einsum takes one loop over all of them."""
    text = node.text("equation")
    lengths: dict[str, int] = {}
    others = 1
    terms = text.replace(" ", "").partition("->")[0].split(",")
    for term, array in zip(terms, _constants(node), strict=True):
        if array is None:
            return math.inf
        before, dots, after = term.partition("...")
        count = len(before) + len(after)
        tail = array.ndim - len(after)
        named = [*array.shape[: len(before)], *array.shape[tail:]]
        if dots:
            others = max(others, 1) * max(math.prod(array.shape[len(before) : tail]), 1)
        if len(named) != count:
            raise ValueError(f"{text!r} does not fit an input of shape {array.shape}")
        for letter, length in zip(before + after, named, strict=True):
            lengths[letter] = max(lengths.get(letter, 1), length)
    return 2.0 * math.prod(lengths.values()) * others + _TOUCHED * (read + made)


def _attend(node: Node, read: int, made: int) -> float:
    scores = _array(node, 0).size * _array(node, 1).size
    return scores * _SLOW_MULTIPLY + _TOUCHED * (read + made)


def _resize(node: Node, read: int, made: int) -> float:
    """Count the taps of each axis: those of a filter against aliasing grow with what it shrinks."""
    taps, largest = 0, max(read, made)
    for length, count in zip(_array(node, 0).shape, resized_shape(node), strict=True):
        is_filtered = 0 < count < length and node.attributes.get("antialias", 0)
        taps += 4 * math.ceil(length / count) if is_filtered else 4 * (length != count)
    return float(_TOUCHED * largest * taps + _CALL * taps)


def _recur(node: Node, read: int, made: int) -> float:
    x, recurrent = _array(node, 0), _array(node, 2)
    steps = x.shape[node.attributes.get("layout", 0)] * recurrent.shape[0]
    rows = x.size // max(x.shape[-1], 1)
    weights = (_array(node, 1).size + recurrent.size) * rows
    return float(4 * _CALL * steps + _TOUCHED * (read + made) + weights)


def _suppress(node: Node, read: int, made: int) -> float:
    boxes, scores = _array(node, 0), _array(node, 1)
    return float(_CALL * scores.size + _TOUCHED * scores.size * boxes.shape[1])


def _invert(node: Node, read: int, made: int) -> float:
    return read * _last_axis(node) + _TOUCHED * (read + made)


_COUNTS: Mapping[str, _Count] = {
    "Attention": _attend,
    "Col2Im": _loop,
    "Det": _invert,
    "Einsum": _einsum,
    "GRU": _recur,
    "Gemm": _product(_gemm_depth),
    "GridSample": lambda node, read, made: 8 * _loop(node, read, made),
    "LSTM": _recur,
    "MatMul": _product(_last_axis),
    "MatMulInteger": _product(_last_axis),
    "MaxRoiPool": _loop,
    "MaxUnpool": _loop,
    "MelWeightMatrix": _loop,
    "NegativeLogLikelihoodLoss": _loop,
    "NonMaxSuppression": _suppress,
    "QLinearMatMul": _product(_last_axis),
    "RNN": _recur,
    "Resize": _resize,
    "ReverseSequence": lambda node, read, made: (
        _touch(node, read, made) + _CALL * _array(node, 1).size
    ),
    "STFT": _loop,
    "SoftmaxCrossEntropyLoss": _loop,
    "StringConcat": lambda node, read, made: 64 * _touch(node, read, made),
    "TensorScatter": _loop,
    "TopK": _sort,
    "Unique": lambda node, read, made: 64 * _sort(node, read, made),
}
_UNBOUNDED = frozenset(
    {
        "DeformConv",
        "ImageDecoder",
        "RegexFullMatch",
        "RoiAlign",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
    }
)
"""Computed in loops that an attribute, or the content of an input, can make as long as it likes."""

_WINDOWS = frozenset(
    {
        "AveragePool",
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "GlobalMaxPool",
        "LRN",
        "LpPool",
        "MaxPool",
        "QLinearConv",
    }
)
"""Left to devices, which compute them faster than this and seldom meet them among constants."""
