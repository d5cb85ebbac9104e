"""What a type rule raises where a node contradicts itself, and what its message tells."""

from __future__ import annotations

from ...errors import ModelError
from ..graph import Node, Value

__all__ = ["ContradictionError", "contradiction_of"]

_FEW = 8
"""Elements of a constant that a message shows."""


class ContradictionError(ModelError):
    """What a node is given cannot belong together, or cannot be given to its operator.

    Rules raise it with the reason alone; ``type_rule`` adds the node and what it is given.
    """


def contradiction_of(node: Node, why: str) -> ContradictionError:
    """Make the error that names a node, why it is refused, and all that it is given."""
    given = ", ".join(_text(value) for value in node.inputs if value is not None)
    rest = f"; it is given {given}" if given else ""
    text = f"{node.op} (node {node.name!r}) cannot be computed: {why}{rest}"
    return ContradictionError(text, node=node.name, op=node.op)


def _text(value: Value) -> str:
    text = f"{value.name!r} {value.type}"
    array = value.constant
    return text if array is None or array.size > _FEW else f"{text} = {array.tolist()}"
