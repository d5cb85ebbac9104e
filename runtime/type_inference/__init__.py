"""Types of values, inferred by rules of our own: quick, and without onnx.

What has no rule, or only a rule that cannot tell, is left to onnx's inference, which needs onnx, a
helper process and some ten milliseconds a call. What contradicts itself is refused.
"""

from .content.shape_content import Lengths, ShapeContent
from .contradiction import ContradictionError
from .inference import (
    apply_user_rules,
    correct_graph_types,
    has_static_types,
    infer_graph_types,
    infer_told_types,
)
from .rules import find_rule, type_rule

__all__ = [
    "ContradictionError",
    "Lengths",
    "ShapeContent",
    "apply_user_rules",
    "correct_graph_types",
    "find_rule",
    "has_static_types",
    "infer_graph_types",
    "infer_told_types",
    "type_rule",
]
