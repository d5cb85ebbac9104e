"""When a node gives back its first input: one rule an operator, proven from types and constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import zip_longest

from ...graph import Node, Shape, TensorType, Value, is_static
from ..rewriting.node_traits import is_training, is_unused

__all__ = ["NO_OP_RULES", "is_no_op"]


def is_no_op(node: Node) -> bool:
    """True if the first output surely equals the first input, and no other output is needed."""
    rule = None if node.domain else NO_OP_RULES.get(node.op_type)
    if rule is None or not node.inputs or node.inputs[0] is None:
        return False
    return all(is_unused(value) for value in node.outputs[1:]) and rule(node)


def _always(node: Node) -> bool:
    return True


def _has_one_input(node: Node) -> bool:
    return len(node.inputs) == 1


def _dropout(node: Node) -> bool:
    return not is_training(node)


def _cast(node: Node) -> bool:
    known = _tensor(node.inputs[0])
    return known is not None and known.dtype.value == node.attributes.get("to")


def _cast_like(node: Node) -> bool:
    given, like = _tensor(node.inputs[0]), _tensor(node.inputs[-1])
    return given is not None and like is not None and given.dtype is like.dtype


def _reshape(node: Node) -> bool:
    shape, target = _shape(node), node.integers_at(1)
    if shape is None or target is None or len(shape) != len(target):
        return False
    copies_zero = not node.attributes.get("allowzero", 0)
    equal = [
        wanted == length or (wanted == 0 and copies_zero)
        for length, wanted in zip(shape, target, strict=True)
    ]
    # With all other lengths equal, the one that is worked out (-1) is equal, too.
    return all(equal) or (equal.count(False) == 1 and target[equal.index(False)] == -1)


def _transpose(node: Node) -> bool:
    shape = _shape(node)
    order = node.attributes.get("perm")
    if order is None:
        return shape is not None and len(shape) <= 1
    axes = [int(axis) for axis in order]
    if axes == list(range(len(axes))):
        return True
    if shape is None or not is_static(shape) or sorted(axes) != list(range(len(shape))):
        return False
    # Axes of length 1 may move as long as the shape stays as it is.
    wide = [axis for axis in axes if shape[axis] != 1]
    return wide == sorted(wide) and tuple(shape[axis] for axis in axes) == shape


def _expand(node: Node) -> bool:
    shape, target = _shape(node), node.integers_at(1)
    if shape is None or target is None or len(target) > len(shape):
        return False
    pairs = zip_longest(reversed(shape), reversed(target), fillvalue=1)
    return all(wanted in (1, length) for length, wanted in pairs)


def _pad(node: Node) -> bool:
    pads = node.integers_at(1)
    return pads is not None and not any(pads)


def _tile(node: Node) -> bool:
    repeats = node.integers_at(1)
    return repeats is not None and all(count == 1 for count in repeats)


def _flatten(node: Node) -> bool:
    shape = _shape(node)
    return shape is not None and len(shape) == 2 and node.attributes.get("axis", 1) in (1, -1)


def _tensor(value: Value | None) -> TensorType | None:
    return value.type if value is not None and isinstance(value.type, TensorType) else None


def _shape(node: Node) -> Shape | None:
    known = _tensor(node.inputs[0])
    return known.shape if known is not None else None


NO_OP_RULES: Mapping[str, Callable[[Node], bool]] = {
    "Cast": _cast,
    "CastLike": _cast_like,
    "Concat": _has_one_input,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Identity": _always,
    "Max": _has_one_input,
    "Mean": _has_one_input,
    "Min": _has_one_input,
    "Pad": _pad,
    "Reshape": _reshape,
    "Sum": _has_one_input,
    "Tile": _tile,
    "Transpose": _transpose,
}
