"""Users' kernels on numpy arrays, each called between two native calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....errors import TensorError
from ....runtime.graph import Node
from ....runtime.lowering.user_kernels import USER_KERNEL, find_user_refusal, used_outputs
from ....runtime.operators.kernel_failure import explain, value_text
from ....runtime.operators.user_kernel import user_operator
from ..plans.operand_layout import Layout
from ..plans.plan_builder import PlanBuilder
from .registry import kernel

__all__ = ["lower_user_kernel", "user_function"]

_DOMAIN, _OPERATOR = USER_KERNEL


@kernel(_OPERATOR, domain=_DOMAIN, dtypes=None, refuses=find_user_refusal)
def lower_user_kernel(node: Node, builder: PlanBuilder) -> None:
    """Lower a node as a call of its user's kernel, whose results are copied to their places."""
    call = user_function(node)
    given = [None if value is None else builder.plain(value) for value in node.inputs]
    made = [
        builder.result(value, Layout.plain(builder.shape(value), builder.dtype(value)))
        for _, value in used_outputs(node)
    ]
    reads = [operand for operand in given if operand is not None]
    builder.numpy(call, [*reads, *made], knows_lengths=False, node=node)


def user_function(node: Node) -> Callable[..., None]:
    """Return what calls a node's kernel with arrays of what it is given and of its used outputs."""
    assert node.user_kernel is not None
    operator = user_operator(node.user_kernel, node, holds_shapes=False)
    places = [index for index, _ in used_outputs(node)]
    is_given, name, op = [value is not None for value in node.inputs], node.name, node.op
    read_count = sum(is_given)

    def call(*arrays: np.ndarray[Any, Any]) -> None:
        rest = iter(arrays[:read_count])
        inputs = [next(rest) if here else None for here in is_given]
        try:
            results = operator(*inputs)
            for target, place in zip(arrays[read_count:], places, strict=True):
                _deliver(results, place, target)
        except Exception as error:
            raise explain(error, name, op, inputs) from error

    return call


def _deliver(results: tuple[Any, ...], place: int, target: np.ndarray[Any, Any]) -> None:
    if place >= len(results):
        raise TensorError(
            f"it gave {len(results)} outputs where output {place} is used, too; it has to return "
            f"a tuple of all"
        )
    result = results[place]
    if not isinstance(result, np.ndarray):
        raise TensorError(f"output {place} is {value_text(result)}, and a tensor is wanted")
    if result.shape != target.shape or result.dtype != target.dtype:
        raise TensorError(
            f"output {place} is {value_text(result)}, and was to be {value_text(target)}"
        )
    target[...] = result
