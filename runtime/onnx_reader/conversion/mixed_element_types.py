"""Element types that operators cannot take, of nodes whose inputs have no known rank.

Our type rules want ranks, so such a node would be refused by no rule before its first run; by then
a device may have changed the element types to some that agree.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import onnx.defs

from ...graph import DType, Graph, Node, TensorType
from ...type_inference.contradiction import contradiction_of
from ...type_inference.inference import has_rank
from ...type_inference.rules import STANDARD_DOMAINS

__all__ = ["check_element_types"]

_Form = tuple[str, bool]
"""What a schema calls the type of an input, and whether any number of these are of one type."""

_NAMED = {
    "tensor(float)": DType.FLOAT32,
    "tensor(int64)": DType.INT64,
    "tensor(string)": DType.STRING,
}
"""All that schemas call by something else than a variable."""


def check_element_types(graph: Graph, opsets: Mapping[str, int]) -> None:
    """Raise ContradictionError for a node that mixes element types which have to be the same.

    And for one whose operator takes another element type there than it is given. Bodies are left
    alone: a branch that no run takes may be impossible. O(nodes), no I/O.
    """
    for node in graph.nodes:
        if node.type_rule is not None or node.domain not in STANDARD_DOMAINS:
            continue
        given = [value for value in node.inputs if value is not None]
        opset = opsets.get(node.domain)
        if opset is not None and not all(has_rank(value.type) for value in given):
            _check_node(node, _forms(node.op_type, opset, node.domain))


def _check_node(node: Node, forms: tuple[_Form, ...]) -> None:
    first: dict[str, tuple[int, DType]] = {}
    for index, dtype, name in _typed_inputs(node, forms):
        wanted = _NAMED.get(name)
        if wanted not in (None, dtype):
            why = f"input {index} is {dtype.label}, and has to be {wanted.label}"
            raise contradiction_of(node, why)
        other, known = first.setdefault(name, (index, dtype))
        if known is not dtype:
            raise contradiction_of(
                node,
                f"inputs {other} and {index} have to be of one element type, and are "
                f"{known.label} and {dtype.label}",
            )


def _typed_inputs(node: Node, forms: tuple[_Form, ...]) -> Iterator[tuple[int, DType, str]]:
    """Walk inputs that are tensors: their numbers, element types and what schemas call these."""
    for index, value in enumerate(node.inputs if forms else ()):
        name, is_one_type = forms[min(index, len(forms) - 1)]
        if value is not None and isinstance(value.type, TensorType) and is_one_type:
            yield index, value.type.dtype, name


@functools.lru_cache(maxsize=1000)  # names are the file's, so there is no end to them
def _forms(op_type: str, opset: int, domain: str) -> tuple[_Form, ...]:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return ()
    return tuple((item.type_str, item.is_homogeneous) for item in schema.inputs)
