"""What follows an int8 Conv, Gemm or MatMul, as steps that oneDNN applies to its sums. Pure.

From the matmul or convolution one walks forward as long as the result so far has one user.
Activations are steps as they are, where they make numbers of numbers: oneDNN stores NaN at the
other end of int8 than QuantizeLinear does. A QuantizeLinear ends the walk, unless what it stores is
dequantised for one elementwise node after another and stored again: then it becomes the steps that
it is made of, so that the sum of a residual block needs no pass over memory of its own, and comes
to the numbers that the file's nodes come to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ....runtime.graph import Node, Value
from ....runtime.passes import have_one_affinity
from ....runtime.passes.rewriting.matching import is_standard, only_user, static_shape
from ..onednn.post_ops import PostOp
from .elementwise_steps import MAX_POST_OPS, steps_of
from .quantization_facts import RANGES, Quantization, dequantized, quantization_of

__all__ = ["Int8Epilogue", "activated", "follow", "next_of", "quantizing", "sum_steps", "tidied"]


_MOST_STEPS = MAX_POST_OPS + 2
"""The first and the last may become part of scales and shifts."""

_LEAVING_NUMBERS = frozenset({"exp", "log", "pow", "sqrt", "square"})
"""What makes NaN of a number, or infinities that others make NaN of."""


@dataclass(frozen=True)
class Int8Epilogue:
    """Steps on real numbers, and how the last of them are stored; float32 if ``stored`` is None.

    ``first`` is the first node behind the matmul that is stored in 8 bits, where that is not the
    last one. Operands of steps count in ``operands``.
    """

    nodes: tuple[Node, ...]
    steps: tuple[PostOp, ...] = ()
    operands: tuple[Value, ...] = ()
    stored: Quantization | None = None

    @property
    def result(self) -> Value:
        return self.nodes[-1].outputs[0]


def follow(node: Node, *, takes_sums: bool = True, takes_rows: bool = False) -> Int8Epilogue:
    """Walk forward from a matmul, as far as its sums can be brought.

    ``takes_sums``: the Add of a residual block may be a step, as its other tensor lies like this.
    ``takes_rows``: so may that of a bias, which many files store sums before and behind of.
    """
    found = activated(Int8Epilogue((node,)), _leaves_numbers)
    user = next_of(found)
    stored = None if user is None else _stored_by(user, found.result)
    if user is None or stored is None:
        return Int8Epilogue((node,))
    first = replace(found, nodes=(*found.nodes, user), stored=stored)
    return (_longer(first, takes_rows) if takes_sums else None) or first


def quantizing(stored: Quantization) -> tuple[PostOp, ...]:
    """Return what makes numbers of a stored type of real ones, but for the conversion."""
    low, high = RANGES[stored.dtype]
    return (
        PostOp.unary("linear", 1.0 / stored.scale, float(stored.zero_point)),
        PostOp.unary("clip", float(low), float(high)),
        PostOp.unary("round"),
    )


def tidied(steps: Sequence[PostOp], stored: Quantization | None) -> tuple[PostOp, ...]:
    """Bring steps to as few as do the same to real numbers, up to the last bits.

    Linear steps go before bounds, which move with them; two of a kind in a row become one; and
    bounds at the end go where those of the stored type are closer.
    """
    made: list[PostOp] = []
    for step in steps:
        if step.name == "relu" and step.alpha == 0.0:
            step = PostOp.unary("clip", 0.0, math.inf)
        _append(made, step)
    if stored is not None and made and made[-1].name == "clip":
        low, high = RANGES[stored.dtype]
        if made[-1].alpha <= low and made[-1].beta >= high:
            made.pop()
    return tuple(made)


def _append(made: list[PostOp], step: PostOp) -> None:
    before = made[-1] if made else None
    if before is None or before.operand is not None or step.operand is not None:
        made.append(step)
    elif step.name == before.name == "linear":
        shift = before.beta * step.alpha + step.beta
        made[-1] = PostOp.unary("linear", before.alpha * step.alpha, shift)
    elif step.name == before.name == "clip":
        low, high = (min(max(bound, step.alpha), step.beta) for bound in before[1:3])
        made[-1] = PostOp.unary("clip", low, high)
    elif step.name == "linear" and before.name == "clip" and step.alpha > 0.0:
        made.pop()
        _append(made, step)
        low, high = (bound * step.alpha + step.beta for bound in before[1:3])
        made.append(PostOp.unary("clip", low, high))
    else:
        made.append(step)


def sum_steps(other: Quantization, operand: int) -> tuple[PostOp, ...]:
    """Add an operand as it is stored to a real number."""
    return (
        PostOp.unary("linear", 1.0 / other.scale, -float(other.zero_point)),
        PostOp.binary("add", operand),
        PostOp.unary("linear", other.scale),
    )


def _longer(first: Int8Epilogue, takes_rows: bool) -> Int8Epilogue | None:
    """Go on behind the first QuantizeLinear, if there is another one; else None."""
    assert first.stored is not None
    again = next_of(first)
    if (
        again is None
        or quantization_of(again) != first.stored
        or again.op_type != "DequantizeLinear"
    ):
        return None
    zero, scale = first.stored.zero_point, first.stored.scale
    back = PostOp.unary("linear", scale, -zero * scale)
    steps = (*first.steps, *quantizing(first.stored), back)
    found = replace(first, nodes=(*first.nodes, again), steps=steps, stored=None)
    found = _added(found, takes_rows)
    found = activated(found, _leaves_numbers)
    user = next_of(found)
    stored = None if user is None else _stored_by(user, found.result)
    if user is None or stored is None:
        return None
    return replace(found, nodes=(*found.nodes, user), stored=stored)


def _added(found: Int8Epilogue, takes_rows: bool) -> Int8Epilogue:
    """Take an Add of a tensor that is stored in 8 bits, or of a row, if one follows."""
    user, value = next_of(found), found.result
    if user is None or not is_standard(user, "Add"):
        return found
    left, right = user.inputs
    added = right if left is value else left
    if takes_rows and _is_row(added, value):
        assert added is not None
        steps = (*found.steps, PostOp.binary("add", len(found.operands)))
        operands = (*found.operands, added)
        return replace(found, nodes=(*found.nodes, user), steps=steps, operands=operands)
    other = dequantized(added)
    if other is None or left is right or static_shape(other[0]) != static_shape(value):
        return found
    stored, facts = other
    steps = (*found.steps, *sum_steps(facts, len(found.operands)))
    operands = (*found.operands, stored)
    return replace(found, nodes=(*found.nodes, user), steps=steps, operands=operands)


def _is_row(added: Value | None, value: Value) -> bool:
    """True for a constant of one finite number for each column of a value."""
    array, shape = None if added is None else added.constant, static_shape(value)
    if array is None or array.dtype != np.float32 or not shape or array.ndim > len(shape):
        return False
    is_long = array.size == shape[-1] and array.shape[-1:] == shape[-1:]
    return bool(is_long and np.isfinite(array).all())


def activated(found: Int8Epilogue, is_left: Callable[[PostOp], bool]) -> Int8Epilogue:
    """Take steps without operands as long as they follow, and of no node one that ``is_left``."""
    while (user := next_of(found)) is not None:
        steps = steps_of(user, found.result)
        if steps is None or steps.operands or len(user.outputs) != 1:
            break
        if any(map(is_left, steps.post_ops)):
            break
        longer = (*found.steps, *steps.post_ops)
        if len(longer) > _MOST_STEPS:
            break
        found = replace(found, nodes=(*found.nodes, user), steps=longer)
    return found


def _leaves_numbers(step: PostOp) -> bool:
    return step.name in _LEAVING_NUMBERS


def _stored_by(user: Node, value: Value) -> Quantization | None:
    is_first = user.op_type == "QuantizeLinear" and user.inputs[0] is value
    return quantization_of(user) if is_first else None


def next_of(found: Int8Epilogue) -> Node | None:
    """Return the node that alone uses the result, if it may be taken in."""
    user = only_user(found.result)
    if user is None or user.graph is not found.nodes[0].graph:
        return None
    return user if have_one_affinity((found.nodes[0], user)) else None
