"""Users' kernels on CuPy's arrays, each called where its launch stands."""

from __future__ import annotations

from ....runtime.graph import Node, TensorType
from ....runtime.lowering.user_kernels import USER_KERNEL, find_user_refusal, used_outputs
from ...accelerator.operand import Operand
from ...accelerator.plan_builder import PlanBuilder
from ...accelerator.queues.user_operation import ArrayForm, UserOperation
from .registry import kernel

__all__ = ["lower_user_kernel"]

_DOMAIN, _OPERATOR = USER_KERNEL
_NUMPY_TYPES = 256
"""Numpy's own have lower numbers, and CuPy has those."""


def find_refusal(node: Node) -> str | None:
    """Return why a user's kernel cannot be called, or None."""
    for value in (*node.inputs, *node.outputs):
        kind = None if value is None else value.type
        if isinstance(kind, TensorType) and kind.dtype.numpy.num >= _NUMPY_TYPES:
            assert value is not None
            return f"{value.name!r} is {kind}, and users' kernels have arrays of numpy's types only"
    return find_user_refusal(node)


@kernel(_OPERATOR, domain=_DOMAIN, dtypes=None, refuses=find_refusal)
def lower_user_kernel(node: Node, builder: PlanBuilder) -> None:
    """Lower a node as a call of its user's kernel, whose results are copied to their places."""
    assert node.user_kernel is not None
    given = [None if value is None else builder.own_operand(value) for value in node.inputs]
    used = used_outputs(node)
    made = [
        builder.define(value, builder.temporary(builder.shape(value), builder.dtype(value)))
        for _, value in used
    ]
    operation = UserOperation.of_function(
        node.user_kernel,
        node.attributes,
        [None if operand is None else _form(operand) for operand in given],
        [(place, _form(operand)) for (place, _), operand in zip(used, made, strict=True)],
        node=node.name,
        op=node.op,
    )
    builder.call(operation, [*(operand for operand in given if operand is not None), *made])


def _form(operand: Operand) -> ArrayForm:
    return ArrayForm(tuple(operand.shape), operand.dtype.numpy)
