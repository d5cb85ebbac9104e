"""Users' kernels on devices that place memory ahead: what such a device can take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ...errors import AioInferError
from ..graph import Node, Shape, TensorType, Value, copy_node, is_static

__all__ = ["USER_KERNEL", "find_user_refusal", "used_outputs"]

USER_KERNEL = ("aioinfer.user", "Kernel")
"""The domain and the operator that a device registers what lowers users' kernels under."""

_LENGTHS = (8, 16, 24, 32, 40, 48)
"""Any that are unequal; multiples, because a rule may divide by small numbers."""


def used_outputs(node: Node) -> list[tuple[int, Value]]:
    """List the outputs that something needs, each with its index."""
    return [
        (index, value)
        for index, value in enumerate(node.outputs)
        if value.uses or value.is_graph_output
    ]


def find_user_refusal(node: Node) -> str | None:
    """Return why memory cannot be placed for what a user's kernel makes, or None.

    Where input lengths are open, its type rule is asked for some: what it leaves open then it will
    leave open for all.
    """
    told = _types_for_some_lengths(node)
    for index, value in used_outputs(node):
        kind = value.type
        if told is not None:
            kind = told[index] if index < len(told) else None
        if not isinstance(kind, TensorType):
            return f"{_teller(node)} does not tell the element type of {value.name!r}"
        if kind.shape is None or (told is not None and not is_static(kind.shape)):
            return f"{_teller(node)} leaves open which shape {value.name!r} has"
        if told is None and node.type_rule is None and _is_open(kind.shape, node):
            return f"{_teller(node)} leaves open which shape {value.name!r} has"
    return None


def _teller(node: Node) -> str:
    """Name what has to tell the types of a user's operator."""
    if node.type_rule is None:
        return f"the extension of {node.op} has no infer_types, and the model's value_info"
    return f"infer_types of the extension of {node.op}"


def _types_for_some_lengths(node: Node) -> Sequence[TensorType | None] | None:
    """Ask the node's rule for some lengths; None where there is none, or it fails for these."""
    if node.type_rule is None:
        return None
    lengths = itertools.cycle(_LENGTHS)
    symbols: dict[str, int] = {}
    inputs: dict[Value, Value] = {}
    for value in node.inputs:
        if value is None:
            continue
        kind = value.type
        if not isinstance(kind, TensorType) or kind.shape is None:
            return None
        shape = tuple(_with_lengths(kind.shape, symbols, lengths))
        inputs[value] = Value(value.name, TensorType(kind.dtype, shape), value.constant)
    try:
        return node.type_rule(copy_node(node, inputs))
    except AioInferError:
        return None


def _with_lengths(shape: Shape, symbols: dict[str, int], lengths: Iterator[int]) -> Iterator[int]:
    for dim in shape or ():
        if isinstance(dim, str):
            yield symbols.setdefault(dim, next(lengths))
        else:
            yield next(lengths) if dim is None else dim


def _is_open(shape: Shape, node: Node) -> bool:
    """True for a length that is neither a number nor one of the node's inputs'."""
    known: set[object] = set()
    for value in node.inputs:
        if value is not None and isinstance(value.type, TensorType):
            known.update(value.type.shape or ())
    return any(dim is None or (isinstance(dim, str) and dim not in known) for dim in shape or ())
