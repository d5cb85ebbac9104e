"""Elementwise operators, where a call of numpy is all there is to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....runtime.graph import DType, Node
from ....runtime.operators.own import own_elementwise
from .registry import Array, kernel

__all__: list[str] = []


def _same_type(a: Array, b: Array) -> None:
    if a.dtype != b.dtype:
        raise TypeError(f"both inputs need one element type, and have {a.dtype} and {b.dtype}")


def _binary(op_type: str, function: Callable[[Array, Array], Any]) -> None:
    def operator(a: Array, b: Array) -> Any:
        _same_type(a, b)
        return function(a, b)

    kernel(op_type)(operator)


_binary("Add", np.add)
_binary("Sub", np.subtract)
_binary("Mul", np.multiply)
_binary("Equal", np.equal)
_binary("Greater", np.greater)
_binary("GreaterOrEqual", np.greater_equal)
_binary("Less", np.less)
_binary("LessOrEqual", np.less_equal)
_binary("And", np.logical_and)
_binary("Or", np.logical_or)
_binary("Xor", np.logical_xor)


def _unary(op_type: str, function: Callable[[Array], Any]) -> None:
    def operator(x: Array) -> Any:
        made = np.asarray(function(x))
        return made if made.dtype == x.dtype else made.astype(x.dtype)

    kernel(op_type)(operator)


_unary("Abs", np.abs)
_unary("Ceil", np.ceil)
_unary("Cos", np.cos)
_unary("Exp", np.exp)
_unary("Floor", np.floor)
_unary("Log", np.log)
_unary("Neg", np.negative)
_unary("Reciprocal", np.reciprocal)
_unary("Sin", np.sin)
_unary("Sqrt", np.sqrt)
_unary("Tanh", np.tanh)


@kernel("Not")
def logical_not(x: Array) -> Any:
    """Negate truth values."""
    return np.logical_not(x)


@kernel("Div")
def divide(a: Array, b: Array) -> Any:
    """Divide; integers are cut towards zero, and give 0 where they are divided by 0."""
    _same_type(a, b)
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient, rest = np.floor_divide(a, b), np.remainder(a, b)
    return quotient + ((rest != 0) & ((a < 0) ^ (b < 0))).astype(quotient.dtype)


@kernel("Pow")
def power(base: Array, exponent: Array) -> Any:
    """Raise to a power, in numpy's common type, and give the type of the base."""
    return own_elementwise.power(base, exponent)


@kernel("Relu")
def relu(x: Array) -> Any:
    """Return max(x, 0)."""
    return np.maximum(x, x.dtype.type(0))


@kernel("LeakyRelu")
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Any:
    """Return x, times alpha where it is negative."""
    return np.where(x > 0, x, x * x.dtype.type(np.float32(alpha)))


@kernel("Sigmoid")
def sigmoid(x: Array) -> Any:
    """Return 1 / (1 + exp(-x)), computed so that no exponential overflows."""
    small = np.exp(-np.abs(x))
    one = x.dtype.type(1)
    return np.where(x > 0, one / (one + small), small / (one + small)).astype(x.dtype, copy=False)


@kernel("Where")
def where(condition: Array, x: Array, y: Array) -> Any:
    """Choose from x or y."""
    if x.dtype != y.dtype:
        raise TypeError(f"x and y need one element type, and have {x.dtype} and {y.dtype}")
    return np.where(condition, x, y)


def _fold(op_type: str, function: Callable[[Array, Array], Any]) -> None:
    def operator(first: Array, *others: Array) -> Any:
        total: Any = first
        for other in others:
            _same_type(first, other)
            total = function(total, other)
        return total

    kernel(op_type)(operator)


_fold("Max", np.maximum)
_fold("Min", np.minimum)
_fold("Sum", np.add)


@kernel("Clip")
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Any:
    """Bound x from below, then from above, so that high wins over a low above it.

    A bound that is not given is the lowest or the highest finite number; NaN bounds nothing.

    A bound is one number, though exporters write lists of one: the result has the shape of x.
    """
    made: Any = x
    bottom, top = (
        None if bound is None else bound.astype(x.dtype, copy=False).reshape(())
        for bound in (low, high)
    )
    if x.dtype.kind == "f" and x.dtype.itemsize > 2:  # float16 is as wide as float32 here
        limits = np.finfo(x.dtype)
        bottom = np.asarray(limits.min) if bottom is None else bottom
        top = np.asarray(limits.max) if top is None else top
    if bottom is not None:
        made = np.where(made < bottom, bottom, made)
    if top is not None:
        made = np.where(made > top, top, made)
    return made


_PLAIN = frozenset(
    dtype.value
    for dtype in DType
    if dtype.value < DType.BFLOAT16.value and dtype is not DType.STRING
)


def _is_plain_cast(node: Node) -> bool:
    return node.attributes.get("to") in _PLAIN


@kernel("Cast", accepts=_is_plain_cast)
def cast(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """Convert to a type that numpy has itself; the other attributes concern the small floats."""
    return x.astype(DType(to).numpy)


@kernel("Identity")
def identity(x: Any) -> Any:
    """Return the value itself."""
    return x
