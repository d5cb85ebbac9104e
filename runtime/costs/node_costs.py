"""How much work a node is: the operations that it counts in its formula, and the bytes it touches.

Pure. A length that is not known counts as 1, and what a node does beyond its formula as one
operation for each element it makes; a body of control flow counts once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..graph import Graph, Node, TensorType, Value

__all__ = ["NodeCost", "Shapes", "crossing_bytes", "node_cost", "value_bytes"]

_ONE_BY_ONE = 256.0
"""Operations of vectors in the time of an element that is looked up or compared by itself."""

Shapes = Mapping[str, tuple[int, ...]]
"""By names of values, where more is known than their types say."""


@dataclass(frozen=True)
class NodeCost:
    """``flop`` counts multiplications and additions apart; ``bytes`` are read or written."""

    flop: float
    bytes: float


def node_cost(node: Node, shapes: Shapes) -> NodeCost:
    """Return what one run of a node is; nothing for one that computes of constants alone."""
    used = node.dependencies()
    if used and all(value.is_constant for value in used):
        return NodeCost(0.0, 0.0)
    made = sum(_count(value, shapes) for value in node.outputs)
    counted = _FORMULAS.get(node.op_type, _touch)(node, shapes) if not node.domain else None
    flop = float(made if counted is None else counted)
    touched = float(sum(value_bytes(value, shapes) for value in {*used, *node.outputs}))
    if node.op_type in _TOUCHES_WHAT_IT_MAKES:
        touched = 2.0 * sum(value_bytes(value, shapes) for value in node.outputs)
    if node.op_type in _MOVES_NOTHING:
        flop = touched = 0.0
    for body in node.bodies():
        inner = [node_cost(item, shapes) for item in body.nodes]
        flop += sum(cost.flop for cost in inner)
        touched += sum(cost.bytes for cost in inner)
    return NodeCost(flop, touched)


def crossing_bytes(graph: Graph, shapes: Shapes) -> list[int]:
    """Count what is alive before each node, and what is returned behind the last, in bytes.

    What was made before a place and is used behind it, each value once; at the first place what
    the graph is given. Constants do not cross.
    """
    place = {node: number for number, node in enumerate(graph.nodes)}
    changes = [0] * (len(place) + 2)
    last: dict[Value, int] = {}
    for node, number in place.items():
        for value in node.dependencies():
            if value.producer is not None and not value.is_constant:
                last[value] = number
    for value in graph.outputs:
        if value.producer is not None and not value.is_constant:
            last[value] = len(place)
    for value, end in last.items():
        size = value_bytes(value, shapes)
        changes[_owner_place(value, place) + 1] += size
        changes[end + 1] -= size
    alive, held = [], 0
    for change in changes[: len(place) + 1]:
        held += change
        alive.append(held)
    alive[0] = sum(value_bytes(value, shapes) for value in graph.inputs)
    return alive


def value_bytes(value: Value, shapes: Shapes) -> int:
    """Return what a value takes in memory; 0 for one that is no tensor."""
    if value.constant is not None:
        return int(getattr(value.constant, "nbytes", 0))
    if not isinstance(value.type, TensorType):
        return 0
    return _count(value, shapes) * value.type.dtype.item_bytes


def _owner_place(value: Value, place: Mapping[Node, int]) -> int:
    assert value.producer is not None
    return place[value.producer]


def _shape(value: Value | None, shapes: Shapes) -> tuple[int, ...]:
    if value is None:
        return ()
    if value.name in shapes:
        return tuple(shapes[value.name])
    if value.constant is not None:
        return tuple(getattr(value.constant, "shape", ()))
    dims: Iterable[object] = ()
    if isinstance(value.type, TensorType):
        dims = value.type.shape or ()
    return tuple(dim if isinstance(dim, int) else 1 for dim in dims)


def _count(value: Value | None, shapes: Shapes) -> int:
    return math.prod(_shape(value, shapes))


def _made(node: Node, shapes: Shapes) -> int:
    return sum(_count(value, shapes) for value in node.outputs)


def _touch(node: Node, shapes: Shapes) -> float:
    return _made(node, shapes)


def _convolution(node: Node, shapes: Shapes) -> float:
    """Each element made is a product with all weights of its channel."""
    weights = _shape(node.input_at(1), shapes)
    return 2.0 * _made(node, shapes) * math.prod(weights[1:])


def _transposed_convolution(node: Node, shapes: Shapes) -> float:
    """Each element read is multiplied with all weights of its channel."""
    weights = _shape(node.input_at(1), shapes)
    return 2.0 * _count(node.input_at(0), shapes) * math.prod(weights[1:])


def _product(node: Node, shapes: Shapes) -> float:
    left = _shape(node.input_at(0), shapes)
    depth = left[-1] if left else 1
    if node.op_type == "Gemm" and node.attributes.get("transA", 0) and left:
        depth = left[0]
    return 2.0 * _made(node, shapes) * depth


def _einsum(node: Node, shapes: Shapes) -> float:
    terms = node.text("equation").replace(" ", "").partition("->")[0].split(",")
    lengths: dict[str, int] = {}
    for term, value in zip(terms, node.inputs, strict=False):
        for letter, length in zip(term[::-1], _shape(value, shapes)[::-1], strict=False):
            lengths[letter] = max(lengths.get(letter, 1), length)
    return 2.0 * math.prod(lengths.values())


def _attention(node: Node, shapes: Shapes) -> float:
    """Scores of all pairs of places, and as many multiplications with the values."""
    queries, keys = (_shape(node.input_at(index), shapes) for index in (0, 1))
    length = keys[-2] if len(keys) > 1 else 1
    return 4.0 * math.prod(queries) * length


def _recurrent(node: Node, shapes: Shapes) -> float:
    """Each step multiplies with all weights of both matmuls."""
    steps = math.prod(_shape(node.input_at(0), shapes)[:2])
    weights = sum(_count(node.input_at(index), shapes) for index in (1, 2))
    return 2.0 * steps * weights


def _window(node: Node, shapes: Shapes) -> float:
    sizes = node.attributes.get("kernel_shape", ())
    taps = math.prod(size for size in sizes if isinstance(size, int)) if sizes else 1
    return float(_made(node, shapes) * taps)


def _read(node: Node, shapes: Shapes) -> float:
    return float(_count(node.input_at(0), shapes))


def _regions(node: Node, shapes: Shapes) -> float:
    """Each region is supposed to be a quarter of its picture."""
    pictures, regions = (_shape(node.input_at(index), shapes) for index in (0, 1))
    return _ONE_BY_ONE / 16 * math.prod(regions[:1]) * math.prod(pictures[1:])


def _frames(node: Node, shapes: Shapes) -> float:
    """Each element made is a product with a whole frame."""
    window, length = node.input_at(2), node.input_at(3)
    frame = math.prod(_shape(window, shapes))
    if length is not None and length.constant is not None:
        frame = int(length.constant.reshape(-1)[0])
    return 2.0 * _made(node, shapes) * frame


def _of_each_read(count: float) -> Callable[[Node, Shapes], float]:
    return lambda node, shapes: count * _read(node, shapes)


def _several(count: float) -> Callable[[Node, Shapes], float]:
    return lambda node, shapes: count * _made(node, shapes)


_FORMULAS: dict[str, Callable[[Node, Shapes], float]] = {
    "Attention": _attention,
    "AveragePool": _window,
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Det": _of_each_read(2 * _ONE_BY_ONE),
    "Einsum": _einsum,
    "GRU": _recurrent,
    "Gelu": _several(16),
    "Gemm": _product,
    "GlobalAveragePool": _read,
    "GlobalMaxPool": _read,
    "GridSample": _several(_ONE_BY_ONE),
    "LSTM": _recurrent,
    "LayerNormalization": _several(8),
    "MatMul": _product,
    "MatMulInteger": _product,
    "MaxPool": _window,
    "MaxRoiPool": _regions,
    "OneHot": _several(_ONE_BY_ONE),
    "QLinearConv": lambda node, shapes: _quantized(node, shapes, 3, False),
    "QLinearMatMul": lambda node, shapes: _quantized(node, shapes, 0, True),
    "RNN": _recurrent,
    "ReduceMax": _read,
    "ReduceMean": _read,
    "ReduceSum": _read,
    "STFT": _frames,
    "Softmax": _several(16),
    "TfIdfVectorizer": _of_each_read(16 * _ONE_BY_ONE),
}
"""Operations by operator, where they are not one for each element made."""

_TOUCHES_WHAT_IT_MAKES = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
_MOVES_NOTHING = frozenset({"Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"})


def _quantized(node: Node, shapes: Shapes, index: int, is_matrix: bool) -> float:
    dims = _shape(node.input_at(index), shapes)
    depth = (dims[-1] if dims else 1) if is_matrix else math.prod(dims[1:])
    return 2.0 * _made(node, shapes) * depth
