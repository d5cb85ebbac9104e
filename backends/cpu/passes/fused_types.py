"""Type rules of the CPU's own operators that are made before the shapes of inputs are known."""

from __future__ import annotations

from ....runtime.graph import Node, TensorType
from ....runtime.type_inference import ShapeContent, type_rule
from ..post_ops import CPU_DOMAIN

__all__ = ["like_the_input"]


@type_rule("Eltwise", "LayerNormalization", "RMSNormalization", domain=CPU_DOMAIN)
def like_the_input(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Keep the type of what is normalised, or computed element by element."""
    first = node.inputs[0]
    is_of_one = node.op_type != "Eltwise" or len(node.inputs) == 1
    known = first.type if first is not None and is_of_one else None
    return [known] if isinstance(known, TensorType) else None
