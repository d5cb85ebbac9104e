"""Signatures of any opset, from onnx's schemas, and the nodes of a proto held to them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import onnx.defs

from ....errors import ModelError
from ..plain.plain_opsets import NEWEST_OPSET, OLDEST_OPSET
from ..signatures.attribute_values import find_wrong_value
from ..signatures.signature import Signature, find_mistake
from ..signatures.signature_table import find_signature
from .structure import all_nodes

__all__ = ["check_signatures", "of_schema"]

_KINDS: dict[int, str | None] = {
    number: name.lower() for name, number in onnx.AttributeProto.AttributeType.items()
}
_KINDS[onnx.AttributeProto.UNDEFINED] = None


def check_signatures(nodes: Iterable[onnx.NodeProto], opsets: dict[str, int]) -> None:
    """Raise ModelError for the first node, in bodies too, that does not have its operator's form.

    Nodes have names. Those of operators without a schema pass, and so do empty names of outputs.
    """
    for node in all_nodes(nodes):
        opset = opsets.get(node.domain)
        signature = None if opset is None else _find(node.op_type, opset, node.domain)
        if signature is None:
            continue
        kinds = {item.name: _KINDS.get(item.type) for item in node.attribute}
        mistake = find_mistake(signature, node.input, node.output, kinds)
        if mistake is None and len(kinds) < len(node.attribute):
            mistake = "has an attribute twice"
        if mistake is None:
            mistake = find_wrong_value(node.op_type, _values(node))
        if mistake is not None:
            operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            text = f"node {node.name!r} ({operator} of opset {opset}) {mistake}"
            raise ModelError(text, node=node.name, op=operator)


def _values(node: onnx.NodeProto) -> Iterator[tuple[str, Any]]:
    """Return the attributes that may have a few values only: texts, integers, and lists of them."""
    for item in node.attribute:
        if item.type == onnx.AttributeProto.STRING:
            yield item.name, item.s
        elif item.type == onnx.AttributeProto.INT:
            yield item.name, item.i
        elif item.type == onnx.AttributeProto.STRINGS:
            yield item.name, list(item.strings)
        elif item.type == onnx.AttributeProto.INTS:
            yield item.name, list(item.ints)


def _find(op_type: str, opset: int, domain: str) -> Signature | None:
    if not domain and OLDEST_OPSET <= opset <= NEWEST_OPSET:
        return find_signature(op_type, opset)
    return _of_operator(op_type, opset, domain)


@functools.lru_cache(maxsize=1000)  # names are the file's, so there is no end to them
def _of_operator(op_type: str, opset: int, domain: str) -> Signature | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return of_schema(schema)


def of_schema(schema: onnx.defs.OpSchema) -> Signature:
    """Return the signature that a schema of onnx describes."""
    attributes = sorted(schema.attributes.items())
    return Signature(
        "".join(_name(item.option)[0] for item in schema.inputs),
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        {name: _name(item.type) for name, item in attributes},
        tuple(name for name, item in attributes if item.required),
    )


def _name(member: Any) -> str:
    """Return the name of a member of onnx's enumeration; onnx's stubs lack the attribute."""
    return str(member.name).lower()
