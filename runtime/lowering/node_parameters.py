"""What a node says beside its data: texts in attributes, integers in constant inputs. Pure."""

from __future__ import annotations

from ..graph import Node
from ..graph.sym_array import integers_in

__all__ = ["integers_of", "text_of"]


def integers_of(node: Node, index: int) -> list[int] | None:
    """Read a constant integer input, flat; None if it is not given, or not known."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.constant is None:
        return None
    return integers_in(value.constant)


def text_of(node: Node, name: str, default: str) -> str:
    """Read an attribute that is a text."""
    value = node.attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)
