"""Inputs that have to be known before a plan can be made: axes, sizes, pads.

Shapes determine most of them: shape arithmetic folds once the input shapes are known. What inputs
of the network with few numbers determine is known, too, because plans are made for the content of
such inputs (``content_inputs``). What is computed from other data can never be known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ....runtime.graph import Graph, Node, TensorType, Value
from .registry import INTEGERS, NOT_MOVED, find_kernel, find_refusal

__all__ = ["content_inputs", "find_unknown", "integers_of"]

_FEW = 64
"""Elements; shapes and pads have two for each axis at most."""
_SHAPES_ALONE = frozenset({"Shape", "Size"})


def integers_of(node: Node, index: int) -> list[int] | None:
    """Read a constant integer input; None if it is not given."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.constant is None:
        return None
    return [int(number) for number in value.constant.reshape(-1)]


def find_unknown(node: Node, *, of_a_piece: bool = False) -> str | None:
    """Say which of the inputs that have to be known is computed from data, or None.

    Where a model may be the piece of a larger one, an input of integers may be what another device
    has made of shapes there, however many they are.
    """
    for index, value in _wanted(node):
        for source in _sources(value):
            if not _can_be_content(source) and not (of_a_piece and _is_of_integers(source)):
                return (
                    f"its input {index} ({value.name!r}) depends on the content of "
                    f"{source.name!r}, and has to be known when a plan is made"
                )
    return None


def content_inputs(graph: Graph) -> list[str]:
    """Name the inputs of a graph whose content a plan depends on, in order."""
    found: set[Value] = set()
    for node in graph.nodes:
        for _, value in _wanted(node):
            found.update(_sources(value))
    return [value.name for value in graph.inputs if value in found]


def _wanted(node: Node) -> Iterator[tuple[int, Value]]:
    kernel = find_kernel(node)
    for index in () if kernel is None else kernel.constant_inputs:
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is not None and value.constant is None:
            yield index, value


def _sources(value: Value) -> list[Value]:
    """List the graph inputs and foreign results that determine a value's content."""
    seen, found, waiting = {value}, [], [value]
    while waiting:
        value = waiting.pop()
        node = value.producer
        if value.constant is not None:
            continue
        if node is None or find_refusal(node) is not None:
            found.append(value)  # what another device computes is an input of this one's part
        elif node.domain or node.op_type not in _SHAPES_ALONE:
            fresh = [item for item in node.inputs if item is not None and item not in seen]
            seen.update(fresh)
            waiting += fresh
    return found


def _is_of_integers(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and kind.dtype in INTEGERS


def _can_be_content(value: Value) -> bool:
    """True for what may hold sizes: few numbers, or a row of them whose length is not known.

    A value in the middle of shape arithmetic is an input where a cut goes through it, so this does
    not ask for integers.
    """
    kind = value.type
    if not isinstance(kind, TensorType) or kind.dtype in NOT_MOVED or kind.shape is None:
        return False
    known = [dim for dim in kind.shape if isinstance(dim, int)]
    if len(known) < len(kind.shape):
        return len(kind.shape) <= 1
    return math.prod(known) <= _FEW
