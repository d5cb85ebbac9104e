"""What has to be known of a node's inputs before it can be lowered; see ``ContentInputs``."""

from __future__ import annotations

from ....runtime.content_inputs import ContentInputs
from ....runtime.graph import Graph, Node
from .registry import find_kernel, find_refusal

__all__ = ["content_inputs", "find_unknown", "integers_of"]


def integers_of(node: Node, index: int) -> list[int] | None:
    """Read a constant integer input; None if it is not given."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.constant is None:
        return None
    return [int(number) for number in value.constant.reshape(-1)]


def find_unknown(node: Node, *, of_a_piece: bool = False) -> str | None:
    """Say which of the inputs that have to be known is computed from data, or None."""
    return _known.find_unknown(node, of_a_piece=of_a_piece)


def content_inputs(graph: Graph) -> list[str]:
    """Name the inputs of a graph whose content a plan depends on, in order."""
    return _known.names(graph)


def _constant_inputs(node: Node) -> tuple[int, ...]:
    kernel = find_kernel(node)
    return () if kernel is None else kernel.constant_inputs


_known = ContentInputs(_constant_inputs, find_refusal)
