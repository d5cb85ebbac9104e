"""Type rules of the CPU's own operators that are made before the shapes of inputs are known."""

from __future__ import annotations

from ....runtime.graph import Node, TensorType
from ....runtime.type_inference import ShapeContent, type_rule
from ....runtime.type_inference.families.normalization_types import (
    layer_normalization,
    rms_normalization,
)
from ..onednn.post_ops import CPU_DOMAIN

__all__ = ["like_the_input"]

type_rule("LayerNormalization", domain=CPU_DOMAIN)(layer_normalization)
type_rule("RMSNormalization", domain=CPU_DOMAIN)(rms_normalization)


@type_rule("Eltwise", domain=CPU_DOMAIN)
def like_the_input(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Keep the type of what is computed element by element."""
    first = node.inputs[0]
    known = first.type if first is not None and len(node.inputs) == 1 else None
    return [known] if isinstance(known, TensorType) else None
