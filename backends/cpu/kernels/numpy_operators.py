"""Rare operators that numpy computes between two native calls.

Only what moves or indexes data, has a shape that shapes determine, and is off every hot path:
each costs a return to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....runtime.graph import Node
from ....runtime.operators import Operator, as_operator, make_operator
from ....runtime.operators import find_unsupported as find_missing
from ..operand import Layout, Operand
from ..plan_builder import PlanBuilder
from .registry import kernel

__all__ = ["lower_by_numpy"]

Array = np.ndarray[Any, Any]

_OPERATORS = (
    "CumSum",
    "EyeLike",
    "GatherElements",
    "GatherND",
    "ReverseSequence",
    "ScatterElements",
    "ScatterND",
    "Trilu",
)


def _refuses(node: Node) -> str | None:
    return find_missing(node, {})  # models are of the newest opset


@kernel("OneHot", dtypes=None, refuses=_refuses, constant_inputs=(1,))
@kernel(*_OPERATORS, dtypes=None, refuses=_refuses)
def lower_by_numpy(node: Node, builder: PlanBuilder) -> None:
    """Lower a node as a call of its evaluation on numpy arrays."""
    own = _OWN.get(node.op_type)
    if own is not None:
        operator: Operator = as_operator(own, node.attributes)
    else:
        operator = make_operator(node, builder.model.opsets)
    given = [None if value is None else builder.plain(value) for value in node.inputs]
    made: list[Operand] = []
    for value in node.outputs:
        layout = Layout.plain(builder.shape(value), builder.dtype(value))
        made.append(builder.result(value, layout))
    reads = [operand for operand in given if operand is not None]
    function = _call(operator, [operand is not None for operand in given], len(reads))
    builder.numpy(function, [*reads, *made])


def _call(operator: Operator, is_given: Sequence[bool], read_count: int) -> Callable[..., None]:
    def function(*arrays: np.ndarray[Any, Any]) -> None:
        rest = iter(arrays[:read_count])
        results = operator(*[next(rest) if here else None for here in is_given])
        for target, result in zip(arrays[read_count:], results, strict=True):
            target[...] = result

    return function


def _gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    return np.asarray(x[_places(indices, axis)])


def _scatter_elements(
    x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none"
) -> Array:
    return _scatter(x, _places(indices, axis), updates, reduction)


def _places(indices: Array, axis: int) -> tuple[Array, ...]:
    """Give an element's place by its place in ``indices``, which may be shorter on other axes."""
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    return tuple(places)


def _scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    return _scatter(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


def _scatter(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """Copy, and write or accumulate at these places; IndexError for one outside."""
    made = x.copy()
    if reduction == "none":
        made[places] = updates
    else:
        _REDUCTIONS[reduction].at(made, places, updates)
    return made


_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
}

# onnx.reference computes these in loops, and takes any index for a good one.
_OWN: dict[str, Callable[..., Array]] = {
    "GatherElements": _gather_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
