"""Lengths that are supposed where a model leaves them open, so that nodes can be compared."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Graph, TensorType, Value, is_static
from .node_costs import Shapes

__all__ = ["supposed_shapes"]

_LENGTH = 64
"""Of an axis that is open, but for the first, which mostly is a batch and counts as 1."""


def supposed_shapes(graph: Graph) -> Shapes:
    """Suppose the shapes of those values of a main graph whose lengths are open. O(values)."""
    return {
        value.name: tuple(
            [
                length if isinstance(length, int) else _LENGTH if axis else 1
                for axis, length in enumerate(value.type.shape)
            ]
        )
        for value in _values(graph)
        if isinstance(value.type, TensorType)
        and value.type.shape is not None
        and not is_static(value.type.shape)
    }


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs
