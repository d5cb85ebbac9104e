"""Type rules: what types the outputs of one node have, by operator.

A rule stands at its definition::

    @type_rule("Relu", "Sigmoid")
    def like_first_input(node, contents): ...

It is called with a node whose inputs all have tensor types of known rank, and with what is known
of the content of small integer tensors. It gives one type for each output, or None where it cannot
tell: onnx is asked then. Where the node contradicts itself it raises ContradictionError with the
reason, and onnx is not asked. Rules are those of the newest opset. They are pure.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from importlib import import_module

from ...errors import AioInferError, ModelError
from ..graph import Node, TensorType
from .content.shape_content import ShapeContent
from .contradiction import ContradictionError, contradiction_of
from .one_type import require_one_type

__all__ = ["STANDARD_DOMAINS", "TypeRule", "find_rule", "type_rule"]

FAMILIES = (
    "attention_types",
    "convolution_types",
    "decomposed_types",
    "elementwise_types",
    "indexing_types",
    "movement_types",
    "normalization_types",
    "matmul_types",
    "ml_types",
    "quantization_types",
    "random_types",
    "recurrent_types",
    "reduction_types",
    "sampling_types",
    "shape_types",
    "spectral_types",
    "tree_types",
)
"""The modules of ``families`` that register rules; loaded when the first one is asked for."""

STANDARD_DOMAINS = frozenset({"", "ai.onnx.ml"})
"""Whose operators are known to be functions, and have inference."""

TypeRule = Callable[[Node, ShapeContent], Sequence[TensorType | None] | None]

_rules: dict[tuple[str, str], TypeRule] = {}


def find_rule(node: Node) -> TypeRule | None:
    """Find the rule of a node's operator; None if there is none."""
    _load()
    return _rules.get((node.domain, node.op_type))


@functools.cache
def _load() -> None:
    for family in FAMILIES:
        import_module(f".families.{family}", __package__)


def type_rule(*op_types: str, domain: str = "") -> Callable[[TypeRule], TypeRule]:
    """Register a function as the rule of these operators; backends may, for domains of theirs.

    The rule that a lookup finds raises errors that name the node.
    """

    def register(rule: TypeRule) -> TypeRule:
        for op_type in op_types:
            if (domain, op_type) in _rules:
                raise ValueError(f"{op_type} has two type rules")
            _rules[domain, op_type] = _naming_its_node(rule)
        return rule

    return register


def _naming_its_node(rule: TypeRule) -> TypeRule:
    def named(node: Node, contents: ShapeContent) -> Sequence[TensorType | None] | None:
        try:
            require_one_type(node)
            return rule(node, contents)
        except ContradictionError as reason:
            raise contradiction_of(node, str(reason)) from None
        except (AioInferError, MemoryError):
            raise
        except Exception as error:  # what is odd in a way that the rule has not thought of
            raise ModelError(
                f"the types of {node.op} (node {node.name!r}) cannot be inferred, its attributes "
                f"or inputs are not what the operator has: {error!r}",
                node=node.name,
                op=node.op,
            ) from error

    return named
