"""Which operator sets a graph needs: the oldest in which it means the same."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain, pairwise, repeat
from typing import Any

import onnx
import onnx.defs
import onnx.helper

from ..graph import Model, Node, TensorType, Value
from ..graph.traversal import all_nodes

__all__ = ["lower_opsets", "oldest_opsets"]

_ONLY_TYPES_SINCE = 13
"""From this operator set on, a version has more types, attributes and operands than before."""

_MEAN_SOMETHING_ELSE = frozenset(
    {
        ("Attention", 24),  # what qk_matmul_output_mode asks for
        ("DFT", 20),  # the axis that is meant where none is given
        ("GroupNormalization", 21),  # scales of channels, no longer of groups
        ("IsNaN", 20),  # onnxruntime has no kernel for bfloat16 before
        ("Resize", 19),  # where the pixels of a cropped image lie
        ("RoiAlign", 16),  # the mode that is meant where none is given
    }
)
"""Versions that compute something else than the one before where a node says the same."""

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic

_TYPE_NAMES = {"float32": "float", "float64": "double"}
"""Element types that onnx's schemas call otherwise than users do."""


def lower_opsets(model: Model) -> None:
    """Bring a model down to its ``oldest_opsets``; the model is changed.

    Nodes lose attributes that their operator had not learnt yet: they ask for what it always did.
    """
    model.opsets.update(oldest_opsets(model))
    for node in all_nodes(model.graph):
        schema = _schema(node.op_type, node.domain, model.opsets.get(node.domain, 0))
        for name in [*node.attributes] if schema is not None else ():
            if name not in schema.attributes and name in _newest_attributes(node):
                del node.attributes[name]


def _newest_attributes(node: Node) -> Any:
    return onnx.defs.get_schema(node.op_type, node.domain).attributes


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
    """Return the first version that has a node's operator as the node is, for its types."""
    steps = _steps_back(node.op_type, node.domain, version)
    if not steps:
        return version
    for newer, older in pairwise(steps):
        if not (_has_all_that_is_said(older, newer, node) and _admits(older, node)):
            return int(newer.since_version)
    return int(steps[-1].since_version)


@functools.cache
def _steps_back(op_type: str, domain: str, version: int) -> tuple[Any, ...]:
    """List an operator's schemas from a version down, as far as the newer ones only have more."""
    steps: list[Any] = []
    while True:
        schema = _schema(op_type, domain, version)
        if schema is None or (steps and not _has_only_more(steps[-1], schema)):
            return tuple(steps)
        steps.append(schema)
        since = int(schema.since_version)
        if since <= _ONLY_TYPES_SINCE or (op_type, since) in _MEAN_SOMETHING_ELSE:
            return tuple(steps)
        version = since - 1


def _schema(op_type: str, domain: str, version: int) -> Any:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def _has_only_more(newer: Any, older: Any) -> bool:
    """True if all that an older schema has is in the newer one, at the same place."""
    attributes, before = (_attributes(schema) for schema in (newer, older))
    if any(attributes.get(name) != item for name, item in before.items()):
        return False
    for kept, had in ((newer.inputs, older.inputs), (newer.outputs, older.outputs)):
        places = [[(item.option, item.is_homogeneous) for item in items] for items in (kept, had)]
        if places[0][: len(places[1])] != places[1]:
            return False
    return True


def _attributes(schema: Any) -> dict[str, tuple[Any, ...]]:
    return {
        name: (item.type, item.required, item.default_value.SerializeToString())
        for name, item in schema.attributes.items()
    }


def _has_all_that_is_said(older: Any, newer: Any, node: Node) -> bool:
    """True if a node uses no more of the newer schema than the older one has, or its defaults."""
    for operands, values in ((older.inputs, node.inputs), (older.outputs, node.outputs)):
        is_variadic = bool(operands) and operands[-1].option == _VARIADIC
        if not is_variadic and any(value is not None for value in values[len(operands) :]):
            return False
    return all(
        _is_default(newer.attributes[name], node.attributes[name])
        for name in node.attributes
        if name in newer.attributes and name not in older.attributes
    )


def _is_default(item: Any, given: object) -> bool:
    if not item.default_value.name:
        return False
    default = onnx.helper.get_attribute_value(item.default_value)
    texts = [value.encode() if isinstance(value, str) else value for value in (default, given)]
    return bool(texts[0] == texts[1])


def _admits(schema: Any, node: Node) -> bool:
    """True if the types of all that a node reads and makes are known, and the schema has them."""
    bound: dict[str, str] = {}
    sides = ((schema.inputs, node.inputs), (schema.outputs, node.outputs))
    return all(_admits_all(operands, values, bound) for operands, values in sides)


def _admits_all(
    operands: Sequence[Any], values: Sequence[Value | None], bound: dict[str, str]
) -> bool:
    """Compare types; ``bound`` has those of the schema's type variables so far, and gets more."""
    if not operands:
        return not values
    for operand, value in zip(chain(operands, repeat(operands[-1])), values, strict=False):
        if value is None:
            continue
        kind = value.type
        if not isinstance(kind, TensorType):
            return False
        label = kind.dtype.label
        text = f"tensor({_TYPE_NAMES.get(label, label)})"
        if text not in operand.types:
            return False
        if operand.is_homogeneous and bound.setdefault(operand.type_str, text) != text:
            return False
    return True
