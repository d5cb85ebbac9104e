"""Evaluates one node at a time: by functions of ours, by onnx.reference, or by function bodies.

:func:`make_operator` binds a node's attributes once; the result is called with arrays as often as
one likes, from any thread. Asked in this order:

- ``plain_operators``: simple operators, and nodes that are surely right; onnx is not loaded;
- ``own_operators`` and the modules that register there: what onnx.reference lacks, gets wrong, or
  does in a way that threads may not;
- ``onnx_operators``: onnx.reference's class for the operator, and for an operator that ONNX defines
  as a function of others, that function's body, evaluated by the same means.

Control flow is not here: its bodies are graphs, and the caller has to run them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import NotSupportedError
from ...executors.late_imports import late_imports
from ..graph import Node
from .own.own_operators import find_own
from .plain_operators import Prepared, find_plain

__all__ = ["Operator", "OperatorError", "as_operator", "find_unsupported", "make_operator"]

Operator = Callable[..., tuple[Any, ...]]
"""``operator(*inputs) -> outputs``: arrays, lists (sequences) or None (missing, empty optional).

Outputs may be views of inputs and may be read-only. It raises what numpy or onnx.reference raise.
"""


class OperatorError(NotSupportedError):
    """Nothing here can evaluate the node; ``reason`` says why."""

    def __init__(self, node: str, op: str, reason: str) -> None:
        super().__init__(
            f"cannot evaluate {op} (node {node!r}): {reason}; give a kernel with "
            f"Core.add_extension",
            node=node,
            op=op,
        )
        self.reason = reason


def make_operator(node: Node, opsets: Mapping[str, int]) -> Operator:
    """Bind a node for evaluation on numpy arrays.

    The operator gives one output for each output that the node has. Any thread may call it, several
    at a time. Raises OperatorError, also for a node with bodies (If, Loop, Scan, SequenceMap).
    """
    reason = find_unsupported(node, opsets)
    if reason is not None:
        raise OperatorError(node.name, node.op, reason)
    found = find_plain(node, opsets) or find_own(node.domain, node.op_type)
    if found is not None and not isinstance(found, Prepared):
        return as_operator(found, node.attributes)
    try:
        if found is not None:
            return as_operator(found.prepare(**node.attributes), {})
        with late_imports:
            from .onnx_operators import make_onnx_operator

        return as_operator(make_onnx_operator(node, opsets), {})
    except Exception as error:
        raise OperatorError(node.name, node.op, f"its attributes are refused: {error}") from error


def find_unsupported(node: Node, opsets: Mapping[str, int]) -> str | None:
    """Return why a node cannot be evaluated, or None if it can; needs no input data."""
    if node.bodies():
        return "it has bodies, which a device has to run"
    if find_plain(node, opsets) is not None:
        return None
    with late_imports:
        from .onnx_operators import find_missing

    return find_missing(node, opsets)


def as_operator(function: Callable[..., Any], attributes: Mapping[str, Any]) -> Operator:
    """Bind attributes as keywords, and turn what the function returns into a tuple of our values.

    The function gives an array, a scalar, a list (a sequence), a dict (a map), None, or a tuple of
    them.
    """
    bound = functools.partial(function, **attributes) if attributes else function

    def operator(*inputs: Any) -> tuple[Any, ...]:
        outputs = bound(*inputs)
        if type(outputs) is np.ndarray and outputs.dtype.kind not in "US":
            return (outputs,)
        if isinstance(outputs, tuple):
            return tuple([_as_value(output) for output in outputs])
        return (_as_value(outputs),)

    return operator


def _as_value(value: Any) -> Any:
    """Make an array of a scalar, object strings of numpy's, and a list of a tuple."""
    if type(value) is np.ndarray:
        return value.astype(object) if value.dtype.kind in "US" else value
    if value is None or type(value) is dict:
        return value
    if isinstance(value, list | tuple):
        return [_as_value(item) for item in value]
    if not isinstance(value, np.ndarray | np.generic | bool | int | float | complex | str):
        raise TypeError(f"a result of type {type(value).__name__} is no tensor, list, dict or None")
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array
