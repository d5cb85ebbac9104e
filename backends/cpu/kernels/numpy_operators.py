"""Rare operators that numpy computes between two native calls.

Only what moves or indexes data, has a shape that shapes determine, and is off every hot path:
each costs a return to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....runtime.graph import Node
from ....runtime.graph.sym_int import has_sym_ints
from ....runtime.operators import Operator, make_operator
from ....runtime.operators import find_unsupported as find_missing
from ....runtime.operators.scattering import places_by_axis
from ..plans.operand_layout import Layout, Operand
from ..plans.plan_builder import PlanBuilder
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
    "Trilu",
)


def _refuses(node: Node) -> str | None:
    return find_missing(node, {})  # models are of the newest opset


@kernel("ScatterND", dtypes=None, refuses=_refuses)
def lower_scatter_nd(node: Node, builder: PlanBuilder) -> None:
    """Lower writes of rows; into a state that is there already, they are all that is done."""
    found = builder.written(node.outputs[0])
    if found is None:
        lower_by_numpy(node, builder)
        return
    made, places = found
    indices, updates = node.inputs[1:3]
    assert indices is not None
    assert updates is not None

    def write(indices: Array, updates: Array, target: Array) -> None:
        index = places_by_axis(indices)
        if updates.shape != (*indices.shape[:-1], *target.shape[indices.shape[-1] :]):
            raise ValueError(f"updates are {list(updates.shape)} at places {list(indices.shape)}")
        places.note(target, index)
        target[index] = updates

    reads = [builder.plain(indices), builder.plain(updates)]
    builder.numpy(write, [*reads, made], knows_lengths=False)


@kernel("OneHot", dtypes=None, refuses=_refuses, constant_inputs=(1,))
@kernel(*_OPERATORS, dtypes=None, refuses=_refuses)
def lower_by_numpy(node: Node, builder: PlanBuilder) -> None:
    """Lower a node as a call of its evaluation on numpy arrays."""
    operator = make_operator(node, builder.model.opsets)
    given = [None if value is None else builder.plain(value) for value in node.inputs]
    made: list[Operand] = []
    for value in node.outputs:
        layout = Layout.plain(builder.shape(value), builder.dtype(value))
        made.append(builder.result(value, layout))
    reads = [operand for operand in given if operand is not None]
    function = _call(operator, [operand is not None for operand in given], len(reads))
    attributes = (item if isinstance(item, list) else [item] for item in node.attributes.values())
    knows_lengths = any(map(has_sym_ints, attributes))
    builder.numpy(function, [*reads, *made], knows_lengths=knows_lengths)


def _call(operator: Operator, is_given: Sequence[bool], read_count: int) -> Callable[..., None]:
    def function(*arrays: np.ndarray[Any, Any]) -> None:
        rest = iter(arrays[:read_count])
        results = operator(*[next(rest) if here else None for here in is_given])
        for target, result in zip(arrays[read_count:], results, strict=True):
            if np.shape(result) != target.shape:
                raise ValueError(
                    f"its result is {list(np.shape(result))}, and was to be {list(target.shape)}"
                )
            target[...] = result

    return function
