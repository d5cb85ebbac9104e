"""What patterns ask of a graph: what makes a value, what uses it, and which number it is.

Every function is pure and O(size of what it is given). Patterns look from a node backwards, through
``made_by``, and forwards, through ``only_user``; before they replace what they found, ``is_closed``
says whether no other node needs what is inside. Constants are seen in ``Value.constant`` only, so
constant folding comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ...graph import DType, Graph, Node, TensorType, Value, is_static
from .graph_patch import GraphPatch
from .patch_check import have_one_affinity

__all__ = [
    "are_float32",
    "commuted",
    "does_broadcast",
    "dtype_of",
    "fuse",
    "integers_of",
    "is_closed",
    "is_near",
    "is_scalar",
    "is_standard",
    "made_by",
    "only_user",
    "rank_of",
    "scalar_of",
    "static_shape",
]

_COMMUTATIVE = frozenset({"Add", "Max", "Mean", "Min", "Mul", "Sum"})
_TOLERANCE = 1e-3
"""Exporters write 0.7978 or 0.79788456 for the same number, float16 models less than that."""


def is_standard(node: Node, *op_types: str) -> bool:
    """True for a node of ONNX's own domain of one of these operators."""
    return not node.domain and node.op_type in op_types


def made_by(value: Value | None, *op_types: str, domain: str = "") -> Node | None:
    """Return the node that makes the value, if its operator is one of these, of this domain."""
    producer = None if value is None else value.producer
    if producer is None or producer.domain != domain or producer.op_type not in op_types:
        return None
    return producer


def only_user(value: Value) -> Node | None:
    """Return the node that alone uses the value, and once; None if a graph returns it, too.

    A user in a body of control flow does not count as one that could be fused.
    """
    if len(value.uses) != 1 or value.is_graph_output:
        return None
    ((user, _),) = value.uses
    is_near_by = value.producer is None or value.producer.graph is user.graph
    return user if is_near_by else None


def commuted(node: Node) -> Iterator[tuple[Value, Value]]:
    """Return the two operands of a node in each order that gives the same result.

    That is both for Add, Mul, Max, Min, Sum and Mean, and the order as it is for all others;
    nothing for a node that has not exactly two inputs.
    """
    if len(node.inputs) != 2:
        return
    left, right = node.inputs
    if left is None or right is None:
        return
    yield left, right
    if is_standard(node, *_COMMUTATIVE):
        yield right, left


def is_scalar(value: Value | None) -> bool:
    """True for a numeric constant of one element, whatever its rank."""
    array = None if value is None else value.constant
    return array is not None and array.size == 1 and array.dtype != object


def scalar_of(value: Value | None) -> float | None:
    """Return the number that a constant of one element holds, whatever its rank."""
    if value is None or value.constant is None or not is_scalar(value):
        return None
    return float(value.constant.reshape(-1)[0])


def is_near(number: float | Value | None, expected: float) -> bool:
    """True for a number, or a constant of one element, within 0.1 % of the expected one."""
    found = scalar_of(number) if isinstance(number, Value) else number
    return found is not None and abs(found - expected) <= _TOLERANCE * abs(expected)


def integers_of(value: Value | None) -> tuple[int, ...] | None:
    """Return the integers of a constant list (axes, pads, a target shape), or of a single one."""
    array = None if value is None else value.constant
    if array is None or array.dtype not in (np.int64, np.int32) or array.ndim > 1:
        return None
    return tuple(int(item) for item in array.reshape(-1))


def dtype_of(value: Value | None) -> DType | None:
    """Return the element type of a tensor; None if it is not known, or no tensor."""
    known = None if value is None else value.type
    return known.dtype if isinstance(known, TensorType) else None


def are_float32(*values: Value | None) -> bool:
    """True if all of them are known to be float32 tensors; one that is not given is not asked."""
    for value in values:  # asked of every node, many times
        if value is not None:
            known = value.type
            if not isinstance(known, TensorType) or known.dtype is not DType.FLOAT32:
                return False
    return True


def rank_of(value: Value | None) -> int | None:
    """Return the number of axes, if it is known."""
    known = None if value is None else value.type
    if not isinstance(known, TensorType) or known.shape is None:
        return None
    return len(known.shape)


def static_shape(value: Value | None) -> tuple[int, ...] | None:
    """Return the shape if every length is known."""
    known = None if value is None else value.type
    if not isinstance(known, TensorType):
        return None
    shape = known.shape
    return shape if is_static(shape) else None


def is_closed(nodes: Iterable[Node], result: Value, graph: Graph) -> bool:
    """True if the nodes may go once ``result``, which one of them makes, is replaced.

    That is: all are of this graph and of one affinity, and nothing outside uses, and no graph
    returns, anything else that they make.
    """
    inside = set(nodes)
    if not have_one_affinity(inside) or any(node.graph is not graph for node in inside):
        return False
    made = [value for node in inside for value in node.outputs if value is not result]
    return not any(
        value.is_graph_output or any(user not in inside for user, _ in value.uses) for value in made
    )


def fuse(
    nodes: Iterable[Node],
    last: Node,
    op_type: str,
    inputs: Iterable[Value | None],
    attributes: Mapping[str, Any],
    *,
    domain: str,
    name: str | None = None,
    before: Node | None = None,
) -> GraphPatch:
    """Replace nodes by one of a device's own domain that makes the first output of ``last``.

    ``last`` is one of the nodes. The new one is called ``name``, or as ``last``, and stands where
    ``before`` did, or ``last``: there all its inputs are made, whatever the others' order is.
    """
    gone = list(dict.fromkeys([*nodes, last]))
    old = last.outputs[0]
    made = Value(old.name, old.type)
    fused = Node(op_type, tuple(inputs), (made,), attributes, name=name or last.name, domain=domain)
    ops = ", ".join(node.op_type for node in gone)
    patch = GraphPatch(f"fuse {ops} into {op_type} {fused.name!r}").add(fused, before or last)
    patch.replace(old, made)
    for node in gone:
        patch.remove(node)
    return patch


def does_broadcast(shape: tuple[int, ...] | None, target: tuple[int, ...]) -> bool:
    """True for a known shape that broadcasts to the target and does not widen it."""
    if shape is None or len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(length in (1, whole) for length, whole in pairs)
