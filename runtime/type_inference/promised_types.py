"""A type that inference has found, and what the file promises beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..graph import Dim, Graph, Node, TensorType, Value, ValueType
from ..graph.traversal import all_nodes

__all__ = ["keep_promises", "promise", "promised_values"]


def promised_values(graph: Graph) -> Iterator[Value]:
    """Walk what goes into and out of bodies and is no state of a loop.

    A loop without iterations has no other word on what it collects.
    """
    for node in all_nodes(graph):
        for body in node.bodies():
            states = _states(node, body)
            for value in (*body.inputs, *body.outputs):
                is_inner = value.producer is None or value.producer.graph is body
                if is_inner and value not in states:
                    yield value


def keep_promises(graph: Graph, declared: Mapping[Value, ValueType | None]) -> bool:
    """Fill in what inference leaves open of promised values; True if there was anything."""
    is_fuller = False
    for value in promised_values(graph):
        fuller = promise(value.type, declared.get(value))
        if fuller != value.type:
            value.type, is_fuller = fuller, True
    return is_fuller


def _states(node: Node, body: Graph) -> set[Value]:
    """Find what a loop's body takes from one iteration to the next: the lengths may change."""
    if node.op == "Loop":
        return {*body.inputs[2:], *body.outputs[1 : len(body.inputs) - 1]}
    if node.op == "Scan":
        count = len(body.inputs) - int(node.attributes["num_scan_inputs"])
        return {*body.inputs[:count], *body.outputs[:count]}
    return set()


def promise(found: ValueType | None, known: ValueType | None) -> ValueType | None:
    """Fill in what inference leaves open; the file's symbols go before inferred ones."""
    if found is None or known is None:
        return found or known
    if isinstance(found, TensorType) and isinstance(known, TensorType):
        if found.dtype is not known.dtype or known.shape is None:
            return found
        if found.shape is None:
            return known
        if len(found.shape) != len(known.shape):
            return found
        pairs = zip(found.shape, known.shape, strict=True)
        return TensorType(found.dtype, tuple(_promised_dim(*pair) for pair in pairs))
    if isinstance(found, TensorType) or isinstance(known, TensorType):
        return found
    if type(found) is not type(known):
        return found
    return found.with_element(promise(found.element, known.element))


def _promised_dim(found: Dim, known: Dim) -> Dim:
    if found is None or (isinstance(found, str) and isinstance(known, str)):
        return known
    return found
