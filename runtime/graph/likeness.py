"""Which models differ in nothing but names: what they have in common, as a key."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from .graph import Attribute, Graph, Value
from .model import Model
from .stand_ins import RELEASED_BYTES

__all__ = ["structure_of"]


def structure_of(model: Model) -> Hashable | None:
    """Return a key that two models share exactly if they differ in names and metadata alone.

    Operators, attributes, types, small constants and what is joined to what are in it; symbols of
    types count as more than names, for they say which lengths are equal. None for a model of which
    that is not told: one with bodies, with constants of RELEASED_BYTES or more, with nodes that
    users' functions compute, or with values from outside. O(model).
    """
    graph = model.graph
    numbers: dict[Value, int] = {}
    for given in graph.inputs:
        numbers[given] = len(numbers)
    rows: list[Hashable] = [tuple(model.opsets.items()), *[value.type for value in graph.inputs]]
    for value in graph.initializers.values():
        content = _content(value.constant)
        if content is None:
            return None
        numbers[value] = len(numbers)
        rows.append(content)
    for node in graph.nodes:
        if node.type_rule is not None or node.user_kernel is not None:
            return None
        attributes = _attributes(node.attributes) if node.attributes else ()
        if attributes is None:
            return None
        used = []
        for read in node.inputs:
            number = -1 if read is None else numbers.get(read)
            if number is None:
                return None
            used.append(number)
        for made in node.outputs:
            if made.constant is not None:
                return None
            numbers[made] = len(numbers)
        types = tuple([made.type for made in node.outputs])
        rows.append((node.op_type, node.domain, attributes, tuple(used), types))
    rows.append(tuple([numbers.get(value) for value in graph.outputs]))
    return tuple(rows)


def _content(array: np.ndarray | None) -> Hashable | None:
    """Return type, shape and bytes of a constant; None for what is large, or has no bytes."""
    if array is None or array.dtype.hasobject or array.nbytes >= RELEASED_BYTES:
        return None
    return array.dtype, array.shape, array.tobytes()


def _attributes(attributes: Mapping[str, Attribute]) -> Hashable | None:
    """Return names and contents; None with a graph or a large tensor among them."""
    found: list[Hashable] = []
    for name, attribute in sorted(attributes.items()):
        items = attribute if isinstance(attribute, list) else [attribute]
        known = []
        for item in items:
            if isinstance(item, Graph):
                return None
            content = _content(item) if isinstance(item, np.ndarray) else repr(item)
            if content is None:
                return None
            known.append(content)
        found.append((name, isinstance(attribute, list), tuple(known)))
    return tuple(found)
