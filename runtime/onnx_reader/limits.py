"""How large a model may be that is read: far beyond what anybody exports, far below what hurts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ModelError

if TYPE_CHECKING:
    import onnx

__all__ = [
    "MOST_DEPTH",
    "MOST_NODES",
    "MOST_TENSORS",
    "LimitError",
    "check_count",
    "check_limits",
    "check_operator",
]

MOST_NODES = 2_000_000
"""Nodes of a model, those in bodies included; loading takes some 100 us and 2 kB for each."""
MOST_TENSORS = 4_000_000
"""Initializers, inputs, outputs and declared values of one graph, each."""
MOST_DEPTH = 64
"""Bodies of control flow inside each other; protobuf reads about 45 of them from a file."""


class LimitError(ModelError):
    """A model is larger than what is read, or damaged so that reading on makes no sense."""


def check_count(what: str, count: int, most: int) -> None:
    """Raise LimitError for too many of something."""
    if count > most:
        raise LimitError(
            f"has over {most} {what}, and aioinfer reads no more; is the file damaged? If it is "
            f"not, split the model and run its parts one after the other"
        )


def check_limits(graph: onnx.GraphProto) -> None:
    """Raise LimitError for a graph that is too large, too deep, or has a node without operator."""
    waiting = [(graph, 1)]
    count = 0
    while waiting:
        inner, depth = waiting.pop()
        check_count("bodies inside each other", depth - 1, MOST_DEPTH)
        lists: Sequence[tuple[str, Sequence[object]]] = (
            ("initializers in a graph", inner.initializer),
            ("sparse initializers in a graph", inner.sparse_initializer),
            ("inputs of a graph", inner.input),
            ("outputs of a graph", inner.output),
            ("values declared in a graph", inner.value_info),
        )
        for what, items in lists:
            check_count(what, len(items), MOST_TENSORS)
        count += len(inner.node)
        check_count("nodes", count, MOST_NODES)
        for index, node in enumerate(inner.node):
            check_operator(node.op_type, index, node.name)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append((attribute.g, depth + 1))
                waiting.extend((body, depth + 1) for body in attribute.graphs)


def check_operator(op_type: str, index: int, name: str) -> None:
    """Raise LimitError for a node that names no operator."""
    if not op_type:
        label = f" ({name!r})" if name else ""
        raise LimitError(
            f"has a node, number {index}{label} of its graph, that names no operator; the file is "
            f"damaged, export the model again"
        )
