"""Element types that schemas tell, of values of which onnx's inference tells nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from onnx import defs

from ..decompositions import find_decomposition
from ..graph import DType, Graph, Node, TensorType
from ..type_inference import ShapeContent, find_rule

__all__ = ["add_element_types"]

_Ties = tuple[tuple[int, int], ...]


def add_element_types(graph: Graph, opsets: Mapping[str, int]) -> None:
    """Give outputs without a type the element type of an input of the same type variable.

    onnx's inference leaves all behind a node alone that it cannot infer. Not in bodies.
    """
    for node in graph.nodes:
        if all(value.type is not None for value in node.outputs):
            continue
        if find_decomposition(node) is not None:
            _add_types_of_parts(node)
            continue
        version = opsets.get(node.domain, 0)
        for output, dtype in _fixed(node.op_type, version, node.domain):
            if output < len(node.outputs) and node.outputs[output].type is None:
                node.outputs[output].type = TensorType(dtype)
        for output, source in _ties(node.op_type, version, node.domain):
            if output >= len(node.outputs) or source >= len(node.inputs):
                continue
            made, given = node.outputs[output], node.inputs[source]
            if made.type is None and given is not None and isinstance(given.type, TensorType):
                made.type = TensorType(given.type.dtype)


def _add_types_of_parts(node: Node) -> None:
    """Infer along what a node is made of; of values that lack a rank it tells the element type."""
    rule = find_rule(node)
    for made, known in zip(node.outputs, (rule and rule(node, ShapeContent())) or (), strict=False):
        if made.type is None:
            made.type = known


@functools.lru_cache(maxsize=1000)  # names are the file's, so there is no end to them
def _ties(op_type: str, opset: int, domain: str) -> _Ties:
    """List the pairs of an output and an input that a schema gives one type variable."""
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return ()
    variables = {item.type_param_str for item in schema.type_constraints}
    found = []
    for output, made in enumerate(schema.outputs):
        if not made.is_homogeneous or made.type_str not in variables:
            continue
        for source, given in enumerate(schema.inputs):
            if given.is_homogeneous and given.type_str == made.type_str:
                found.append((output, source))
    return tuple(found)


@functools.lru_cache(maxsize=1000)
def _fixed(op_type: str, opset: int, domain: str) -> tuple[tuple[int, DType], ...]:
    """List the outputs to which a schema gives one type of tensors."""
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return ()
    known = {f"tensor({dtype.label})": dtype for dtype in DType}
    for item in schema.type_constraints:
        if len(item.allowed_type_strs) == 1 and item.allowed_type_strs[0] in known:
            known[item.type_param_str] = known[item.allowed_type_strs[0]]
    found = ((at, known.get(made.type_str)) for at, made in enumerate(schema.outputs))
    return tuple((at, dtype) for at, dtype in found if dtype is not None)
