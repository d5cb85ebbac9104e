"""Structural equality of models: everything that a device or a user can see."""

from typing import Any

import numpy as np

from aioinfer.runtime.graph import Graph, Model, Node, Value


def first_difference(one: Model, other: Model) -> str | None:
    """Name the first place where two models differ, or None."""
    facts = [
        (model.opsets, model.ir_version, model.producer, model.metadata) for model in (one, other)
    ]
    if facts[0] != facts[1]:
        return f"models: {facts[0]} and {facts[1]}"
    return _graphs(one.graph, other.graph, {})


def _graphs(one: Graph, other: Graph, twins: dict[Value, Value]) -> str | None:
    where = f"graph {one.name!r}"
    if one.name != other.name or len(one) != len(other):
        return f"{where}: {one!r} and {other!r}"
    if list(one.initializers) != list(other.initializers):
        return f"{where}: initializers {list(one.initializers)} and {list(other.initializers)}"
    constants = zip(one.initializers.values(), other.initializers.values(), strict=True)
    for mine, yours in [*zip(one.inputs, other.inputs, strict=True), *constants]:
        if not _same_values(mine, yours):
            return f"{where}: {mine!r} and {yours!r}"
        twins[mine] = yours
    for node, twin in zip(one.nodes, other.nodes, strict=True):
        if found := _nodes(node, twin, twins):
            return f"{where}: node {node.name!r}: {found}"
    if [twins[value] for value in one.outputs] != other.outputs:
        return f"{where}: outputs {one.outputs} and {other.outputs}"
    return None


def _nodes(one: Node, other: Node, twins: dict[Value, Value]) -> str | None:
    facts = [(n.op, n.name, n.fused_from, n.metadata, list(n.attributes)) for n in (one, other)]
    if facts[0] != facts[1]:
        return f"{facts[0]} and {facts[1]}"
    if tuple(None if v is None else twins[v] for v in one.inputs) != other.inputs:
        return f"inputs {one.inputs} and {other.inputs}"
    for key, item in one.attributes.items():
        if found := _attributes(item, other.attributes[key], twins):
            return f"attribute {key!r}: {found}"
    for mine, yours in zip(one.outputs, other.outputs, strict=True):
        if not _same_values(mine, yours):
            return f"{mine!r} and {yours!r}"
        twins[mine] = yours
    return None


def _same_values(one: Value, other: Value) -> bool:
    same_constant = one.constant is other.constant or same_arrays(one.constant, other.constant)
    return one.name == other.name and one.type == other.type and same_constant


def _attributes(one: Any, other: Any, twins: dict[Value, Value]) -> str | None:
    if isinstance(one, Graph):
        return _graphs(one, other, twins)
    if isinstance(one, list):
        pairs = zip(one, other, strict=True)
        return next(filter(None, (_attributes(*pair, twins) for pair in pairs)), None)
    if isinstance(one, np.ndarray):
        return None if same_arrays(one, other) else "arrays differ"
    return None if (type(one), one) == (type(other), other) else f"{one!r} and {other!r}"


def same_arrays(one: Any, other: Any) -> bool:
    """True for two arrays of one dtype, shape and content; NaN equals itself."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return False
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype == object:
        return bool((one == other).all())
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
