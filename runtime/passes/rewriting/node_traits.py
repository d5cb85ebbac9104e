"""What passes ask of a single node: whether it matters, is random, or is more than a function."""

from __future__ import annotations

from ...graph import Node, TensorType, Value
from ...type_inference.rules import STANDARD_DOMAINS

__all__ = [
    "has_only_tensors",
    "is_dead",
    "is_pure",
    "is_random",
    "is_training",
    "is_unused",
]

_RANDOM_OPS = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_TRAINING_MODE = 2
"""Which input of Dropout says that it trains."""


def is_unused(value: Value) -> bool:
    """True if neither a node nor a graph needs the value."""
    return not value.uses and not value.is_graph_output


def is_dead(node: Node) -> bool:
    """True if nothing needs any of its outputs; no operator has an effect besides its outputs."""
    for value in node.outputs:  # noqa: SIM110 (asked of every node, many times)
        if value.uses or value.is_graph_output:
            return False
    return True


def is_training(node: Node) -> bool:
    """True for a Dropout that drops, or that might: its training mode is no constant."""
    if node.op_type != "Dropout" or len(node.inputs) <= _TRAINING_MODE:
        return False
    mode = node.inputs[_TRAINING_MODE]
    return mode is not None and (mode.constant is None or bool(mode.constant.any()))


def is_random(node: Node) -> bool:
    """True if two runs on equal inputs may differ; a seed does not change that."""
    return node.op_type in _RANDOM_OPS or is_training(node)


def is_pure(node: Node) -> bool:
    """True if equal inputs surely give equal outputs, and it is one node without bodies.

    Operators of foreign domains are not known to be functions.
    """
    if node.domain not in STANDARD_DOMAINS or is_random(node):
        return False
    return not node.attributes or not node.bodies()


def has_only_tensors(node: Node) -> bool:
    """True if no input or output is known to be a sequence or an optional."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return all(value.type is None or isinstance(value.type, TensorType) for value in values)
