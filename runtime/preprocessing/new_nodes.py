"""The nodes of a step, which stand in no graph yet: found by walking back from what they make."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...errors import TensorError
from ..graph import Node, Value

__all__ = ["new_nodes"]


def new_nodes(made: Iterable[Value], given: Collection[Value]) -> list[Node]:
    """List what computes values from those that are given, in topological order.

    Raises TensorError for a node of some graph, and a value that comes from nowhere.
    """
    found: dict[Node, None] = {}
    begun: set[Node] = set()
    waiting: list[tuple[Value | Node, bool]] = [(value, False) for value in made]
    while waiting:
        item, is_ready = waiting.pop()
        if isinstance(item, Node):
            if is_ready:
                found[item] = None
            elif item not in found:
                if item in begun:
                    raise TensorError(
                        f"{item!r} computes what it reads; a step makes nodes without a circle"
                    )
                begun.add(item)
                waiting.append((item, True))
                waiting += [(value, False) for value in reversed(item.dependencies())]
        elif item not in given and item.producer is not None:
            if item.producer.graph is not None:
                raise TensorError(
                    f"{item!r} is made by {item.producer!r} of another graph; a step makes new "
                    f"nodes from the tensor that it is given, and from constants"
                )
            waiting.append((item.producer, False))
        elif item not in given and not item.is_constant:
            raise TensorError(
                f"{item!r} is neither made by a node nor a constant; a step makes new nodes from "
                f"the tensor that it is given, and from constants"
            )
    return list(found)
