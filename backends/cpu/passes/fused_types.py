"""Type rules of the CPU's own operators that are made before the shapes of inputs are known."""

from __future__ import annotations

from ....runtime.graph import DType, Node, TensorType, shape_text
from ....runtime.type_inference import ShapeContent, type_rule
from ....runtime.type_inference.contradiction import ContradictionError
from ....runtime.type_inference.families.normalization_types import (
    layer_normalization,
    rms_normalization,
)
from ....runtime.type_inference.operands import operand
from ..onednn.post_ops import CPU_DOMAIN

__all__ = ["like_the_input", "packed_matmul"]

type_rule("LayerNormalization", domain=CPU_DOMAIN)(layer_normalization)
type_rule("RMSNormalization", domain=CPU_DOMAIN)(rms_normalization)


@type_rule("PackedMatMul", domain=CPU_DOMAIN)
def packed_matmul(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Replace the last length of the data by the number of columns."""
    data, weights = operand(node, 0), operand(node, 1)
    if data is None or weights is None or data.shape is None or weights.shape is None:
        return None
    inner = node.attributes["inner"]
    if not data.shape or (isinstance(data.shape[-1], int) and data.shape[-1] != inner):
        raise ContradictionError(f"its data are {shape_text(data.shape)}, and K is {inner}")
    return [TensorType(DType.FLOAT32, (*data.shape[:-1], weights.shape[0]))]


@type_rule("Eltwise", domain=CPU_DOMAIN)
def like_the_input(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Keep the type of what is computed element by element."""
    first = node.inputs[0]
    known = first.type if first is not None and len(node.inputs) == 1 else None
    return [known] if isinstance(known, TensorType) else None
