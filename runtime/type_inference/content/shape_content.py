"""What small tensors hold, as far as shapes tell: the content that shape arithmetic has.

A list of lengths may be known in part: in ``[batch, 3, 224]`` the last two are, and picking one of
those gives a constant although the list itself is none. Lists have one dimension or none; what is
told of one is exactly what the node would compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ...graph import Node, Shape, TensorType, Value
from .lengths import LIMIT, ContentRule, Lengths, constant_lengths, known_integers
from .list_content import LIST_RULES
from .number_content import NUMBER_RULES
from .truth_content import TRUTH_RULES

__all__ = ["Lengths", "ShapeContent"]

_RULES: Mapping[str, ContentRule] = {**LIST_RULES, **NUMBER_RULES, **TRUTH_RULES}

_FROM_TYPES = frozenset({"Concat", "Shape", "Size"})
"""Operators of which something is known although nothing is of some input's content."""

_INPUT_COUNT = 5
"""The most inputs that an operator with a rule has, those of variadic ones apart."""


class ShapeContent:
    """Follows lists of lengths through a graph; give it the nodes in topological order."""

    def __init__(self) -> None:
        self._known: dict[Value, Lengths] = {}

    def follow(self, node: Node) -> Lengths | None:
        """Note what the node's outputs hold, if that is known in part, and give it. O(rank).

        What a node with several outputs makes is noted only.
        """
        rule = None if node.domain else _RULES.get(node.op_type)
        if rule is None:
            return None
        inputs: list[Lengths | None] = []
        needs_all = node.op_type not in _FROM_TYPES
        for value in node.inputs:
            lengths = None if value is None else self._of_value(value)
            if lengths is None and value is not None and needs_all:
                return None
            inputs.append(lengths)
        while len(inputs) < _INPUT_COUNT:
            inputs.append(None)
        found = rule(node, inputs)
        if isinstance(found, Lengths):
            return found if self._note(node.outputs[0], found) and len(node.outputs) == 1 else None
        for value, lengths in zip(node.outputs, found or (), strict=False):
            self._note(value, lengths)
        return None

    def forget(self, values: Iterable[Value]) -> None:
        """Know nothing of these values any more, which are about to be inferred again."""
        for value in values:
            self._known.pop(value, None)

    def _note(self, value: Value, lengths: Lengths) -> bool:
        """Remember a content, unless it is too long or of another type than the graph expects."""
        if len(lengths.dims) > LIMIT:
            return False
        if isinstance(value.type, TensorType) and value.type.dtype is not lengths.dtype:
            return False
        self._known[value] = lengths
        return True

    def _of_value(self, value: Value) -> Lengths | None:
        if value.constant is None:
            return self._known.get(value)
        return constant_lengths(value.constant)

    def of_input(self, node: Node, index: int) -> Lengths | None:
        """Return what is known of an input, also of a constant; None if it holds no lengths."""
        value = node.inputs[index] if index < len(node.inputs) else None
        return None if value is None else self._of_value(value)

    def integers(self, node: Node, index: int) -> list[int] | None:
        """Return an input's integers if all of them are known."""
        return known_integers(self.of_input(node, index))

    def dims(self, node: Node, index: int) -> Shape | None:
        """Return an input's integers as far as they are known: as numbers, symbols, or None."""
        lengths = self.of_input(node, index)
        if lengths is None or lengths.dtype.is_floating:
            return None
        return tuple(None if isinstance(dim, float) else dim for dim in lengths.dims)

    def numbers(self, node: Node, index: int) -> list[float] | None:
        """Return an input's numbers, of whichever type, if all of them are known and finite."""
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None:
            return None
        array = value.constant
        if array is not None:
            if array.ndim > 1 or array.size > LIMIT or array.dtype.kind not in "fiu":
                return None
            items: list[float] = array.reshape(-1).tolist()
            return items if all(map(math.isfinite, items)) else None
        lengths = self._known.get(value)
        if lengths is None:
            return None
        known = [dim for dim in lengths.dims if isinstance(dim, (int, float))]
        return known if len(known) == len(lengths.dims) else None
