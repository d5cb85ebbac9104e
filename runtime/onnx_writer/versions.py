"""Which operator sets a graph needs: the oldest in which it means the same."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain, pairwise, repeat
from typing import Any

import onnx
import onnx.defs

from ..graph import Model, Node, TensorType, Value
from ..graph.traversal import all_nodes

__all__ = ["oldest_opsets"]

_ONLY_TYPES_SINCE = 13
"""From this operator set on, a version without a new signature admits more types and no more."""

_MEAN_SOMETHING_ELSE = frozenset({("Resize", 19)})
"""Versions with the signature of the one before that compute something else."""

_TYPE_NAMES = {"float32": "float", "float64": "double"}
"""Element types that onnx's schemas call otherwise than users do."""


def oldest_opsets(model: Model) -> dict[str, int]:
    """Return for each domain of a model the oldest version that has all its operators as they are.

    A runtime that is older than the model's operator set may still run the operators in it; some
    know an operator's function body only up to the version that it was written for, and have no
    kernel for a version that only admits more types. Domains that onnx does not know keep their
    version, and so does one with an operator that it lacks.
    """
    oldest: dict[str, int] = {}
    for node in all_nodes(model.graph):
        version = model.opsets.get(node.domain)
        if version is not None:
            since = _oldest_version(node, version)
            oldest[node.domain] = max(oldest.get(node.domain, 1), since)
    return {domain: oldest.get(domain, version) for domain, version in model.opsets.items()}


def _oldest_version(node: Node, version: int) -> int:
    """Return the first version that has a node's operator with its signature, for its types."""
    steps = _steps_back(node.op_type, node.domain, version)
    if not steps:
        return version
    for newer, older in pairwise(steps):
        if not _admits(older, node):
            return int(newer.since_version)
    return int(steps[-1].since_version)


@functools.cache
def _steps_back(op_type: str, domain: str, version: int) -> tuple[Any, ...]:
    """List an operator's schemas from a version down, as far as they differ in types alone."""
    steps: list[Any] = []
    while True:
        try:
            schema = onnx.defs.get_schema(op_type, version, domain)
        except onnx.defs.SchemaError:
            return tuple(steps)
        if steps and _signature(schema) != _signature(steps[-1]):
            return tuple(steps)
        steps.append(schema)
        since = int(schema.since_version)
        if since <= _ONLY_TYPES_SINCE or (op_type, since) in _MEAN_SOMETHING_ELSE:
            return tuple(steps)
        version = since - 1


def _signature(schema: Any) -> tuple[Any, ...]:
    attributes = [
        (name, item.type, item.required, item.default_value.SerializeToString())
        for name, item in sorted(schema.attributes.items())
    ]
    operands = [
        [(item.name, item.type_str, item.option, item.is_homogeneous) for item in items]
        for items in (schema.inputs, schema.outputs)
    ]
    return attributes, *operands


def _admits(schema: Any, node: Node) -> bool:
    """True if the types of all that a node reads and makes are known, and the schema has them."""
    sides = ((schema.inputs, node.inputs), (schema.outputs, node.outputs))
    return all(_admits_all(operands, values) for operands, values in sides)


def _admits_all(operands: Sequence[Any], values: Sequence[Value | None]) -> bool:
    if not operands:
        return not values
    for operand, value in zip(chain(operands, repeat(operands[-1])), values, strict=False):
        if value is None:
            continue
        kind = value.type
        if not isinstance(kind, TensorType):
            return False
        label = kind.dtype.label
        if f"tensor({_TYPE_NAMES.get(label, label)})" not in operand.types:
            return False
    return True
