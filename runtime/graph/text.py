"""A graph as readable text."""

from __future__ import annotations

import zlib
from array import array as packed
from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import Attribute, Graph, Node, Value
from .shape import shape_text

__all__ = ["graph_text", "some_names"]

LONG = 64
"""Items of an attribute, more of which are shown by the first ones, their number and a checksum."""
_SHOWN = 4


def some_names(names: Sequence[str], most: int = 8) -> str:
    """Write the first names of a list, and how many there are more."""
    listed = ", ".join(names[:most])
    return f"{listed}, {len(names) - most} more" if len(names) > most else listed


def graph_text(graph: Graph, indent: str = "") -> str:
    """Write a graph one node a line, bodies indented; constants by type, small ones by content."""
    lines = [f"{indent}graph {graph.name} {{"]
    lines += [f"{indent}  input {_typed(value)}" for value in graph.inputs]
    lines += [
        f"{indent}  constant {_typed(value)}{_content(value)}"
        for value in graph.initializers.values()
    ]
    for node in graph.nodes:
        lines += _node_lines(node, indent + "  ")
    outputs = ", ".join(f"%{value.name}" for value in graph.outputs)
    lines += [f"{indent}  return {outputs}", f"{indent}}}"]
    return "\n".join(lines)


def _node_lines(node: Node, indent: str) -> list[str]:
    outputs = ", ".join([_typed(value) for value in node.outputs])
    inputs = ", ".join(["_" if value is None else f"%{value.name}" for value in node.inputs])
    attributes = _attributes(node) if node.attributes else ""
    origin = "" if node.fused_from == (node.name,) else f" from {', '.join(node.fused_from) or '-'}"
    affinity = f" @{node.affinity}" if node.affinity else ""
    text = f"{indent}{outputs} = {node.op}({inputs})"
    lines = [
        text + (f" {{{attributes}}}" if attributes else "") + f"  # {node.name}{origin}{affinity}"
    ]
    for body in node.bodies():
        lines.append(graph_text(body, indent + "  "))
    return lines


def _attributes(node: Node) -> str:
    plain = {key: item for key, item in node.attributes.items() if not _has_graph(item)}
    return ", ".join(f"{key}={_attribute(item)}" for key, item in sorted(plain.items()))


def _has_graph(attribute: Attribute) -> bool:
    first = attribute[0] if isinstance(attribute, list) and attribute else attribute
    return isinstance(first, Graph)


def _typed(value: Value) -> str:
    return f"%{value.name}: {value.type or '?'}"


def _content(value: Value) -> str:
    array = value.constant
    if array is None or array.size > 8:
        return ""
    return f" = {_numbers(array)}"


def _numbers(array: np.ndarray) -> str:
    # Most are lengths and bounds, and numpy takes 50 us for each.
    if array.dtype.kind == "f":  # as short as the type has them
        shortest = [float(str(number)) for number in array.ravel()]
        array = np.array(shortest).reshape(array.shape)
    if array.dtype.kind in "iubf":
        return str(array.tolist()).replace(", ", ",")
    return " ".join(np.array2string(array, separator=",").split())


def _attribute(attribute: Attribute) -> str:
    if isinstance(attribute, np.ndarray):
        if attribute.size > 8:
            return f"{attribute.dtype}{shape_text(attribute.shape)}"
        return _numbers(attribute)
    if isinstance(attribute, list) and len(attribute) > LONG:
        head = ", ".join(map(repr, attribute[:_SHOWN]))
        return f"[{head}, ... {len(attribute)} of checksum {zlib.crc32(_bytes(attribute)):08x}]"
    return repr(attribute)


def _bytes(items: list[Any]) -> bytes:
    """Write items as bytes that tell them apart; numbers and texts fast: trees have thousands."""
    first = items[0]
    try:
        if isinstance(first, str):
            text = "\0".join(items)
            if text.count("\0") == len(items) - 1:  # else an item has some
                return text.encode("utf-8", "surrogatepass")
        elif isinstance(first, int | float):
            return packed("q" if isinstance(first, int) else "d", items).tobytes()
    except (TypeError, OverflowError):  # items of several types, or larger ones
        pass
    return repr(items).encode("utf-8", "surrogatepass")
