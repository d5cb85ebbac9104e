"""Plain operators that compute each element from the elements at its place."""

from __future__ import annotations

import functools

import numpy as np

from ...graph import DType, Node
from ..plain_operators import Array, PlainFunction, plain

__all__ = ["cast", "divide", "identity", "logical_not", "mean", "reciprocal", "where"]


def _unary(function: np.ufunc) -> PlainFunction:
    def unary(x: Array) -> Array:
        return np.asarray(function(x)).astype(x.dtype, copy=False)

    return unary


def _binary(function: np.ufunc) -> PlainFunction:
    def binary(a: Array, b: Array) -> Array:
        _check_same_type(a, b)
        return np.asarray(function(a, b))

    return binary


def _variadic(function: np.ufunc) -> PlainFunction:
    def variadic(first: Array, *others: Array) -> Array:
        _check_same_type(first, *others)
        made = functools.reduce(function, others, first)
        return np.asarray(made).astype(first.dtype, copy=False)

    return variadic


def _check_same_type(*arrays: Array) -> None:
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) > 1:
        raise TypeError(f"the inputs have different types: {sorted(map(str, dtypes))}")


_UNARY = {
    "Abs": (np.absolute, 6),
    "Acos": (np.arccos, 7),
    "Acosh": (np.arccosh, 9),
    "Asin": (np.arcsin, 7),
    "Asinh": (np.arcsinh, 9),
    "Atan": (np.arctan, 7),
    "Atanh": (np.arctanh, 9),
    "Ceil": (np.ceil, 6),
    "Cos": (np.cos, 7),
    "Cosh": (np.cosh, 9),
    "Exp": (np.exp, 6),
    "Floor": (np.floor, 6),
    "Log": (np.log, 6),
    "Neg": (np.negative, 6),
    "Sign": (np.sign, 9),
    "Sin": (np.sin, 7),
    "Sinh": (np.sinh, 9),
    "Tan": (np.tan, 7),
    "Tanh": (np.tanh, 6),
}
_BINARY = {
    "Add": (np.add, 7),
    "And": (np.logical_and, 7),
    "Equal": (np.equal, 7),
    "Greater": (np.greater, 7),
    "GreaterOrEqual": (np.greater_equal, 12),
    "Less": (np.less, 7),
    "LessOrEqual": (np.less_equal, 12),
    "Mul": (np.multiply, 7),
    "Or": (np.logical_or, 7),
    "Sub": (np.subtract, 7),
}
for _op_type, (_of_one, _since) in _UNARY.items():
    plain(_op_type, since=_since)(_unary(_of_one))
for _op_type, (_of_two, _since) in _BINARY.items():
    plain(_op_type, since=_since)(_binary(_of_two))
plain("Max", since=8)(_variadic(np.maximum))
plain("Min", since=8)(_variadic(np.minimum))


@plain("Mean", since=8)
def mean(first: Array, *others: Array) -> Array:
    """Average arrays that broadcast; onnx.reference needs the first to have the whole shape."""
    _check_same_type(first, *others)
    total = functools.reduce(np.add, others, first)
    return np.asarray(total / (1 + len(others))).astype(first.dtype, copy=False)


@plain("Div", since=7)
def divide(a: Array, b: Array) -> Array:
    """Divide; integers are cut towards zero, and give 0 where they are divided by 0."""
    _check_same_type(a, b)
    if not np.issubdtype(a.dtype, np.integer):
        return np.asarray(np.divide(a, b)).astype(a.dtype, copy=False)
    floor = np.floor_divide(a, b)
    is_below = (np.remainder(a, b) != 0) & ((a < 0) ^ (b < 0))
    return np.asarray(floor + is_below.astype(a.dtype))


@plain("Reciprocal", since=6)
def reciprocal(x: Array) -> Array:
    """Return 1 / x; an infinity where x is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.reciprocal(x)).astype(x.dtype, copy=False)


@plain("Not", since=1)
def logical_not(x: Array) -> Array:
    """Negate truth values."""
    return np.asarray(np.logical_not(x)).astype(x.dtype, copy=False)


@plain("Where", since=9)
def where(condition: Array, x: Array, y: Array) -> Array:
    """Choose from x where the condition holds, else from y."""
    _check_same_type(x, y)
    return np.where(condition, x, y)


@plain("Clip", since=11)
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """Bring numbers between two bounds, of which the upper one counts where they cross.

    A bound that is not given is the lowest or the highest finite number, of float32 for float16,
    too; one that is NaN is none.
    Exporters write a bound as a list of one, too: the result has the shape of x.
    """
    _check_same_type(x, *(bound for bound in (low, high) if bound is not None))
    bottom, top = (None if bound is None else bound.reshape(()) for bound in (low, high))
    if x.dtype.kind == "f" and x.dtype.itemsize > 2:
        limits = np.finfo(x.dtype)
        bottom = np.asarray(limits.min) if bottom is None else bottom
        top = np.asarray(limits.max) if top is None else top
    bounded = x if bottom is None else np.where(x < bottom, bottom, x)
    return np.asarray(bounded if top is None else np.where(bounded > top, top, bounded))


@plain("Identity", since=1)
def identity(x: object) -> object:
    """Return the value itself."""
    return x


_PLAIN_TYPES = frozenset(
    dtype.value
    for dtype in DType
    if dtype.value < DType.BFLOAT16.value and dtype.name[:7] not in ("STRING", "COMPLEX")
)


def _is_to_plain_type(node: Node) -> bool:
    to = node.attributes["to"]
    return isinstance(to, int) and (to in _PLAIN_TYPES or to == DType.STRING.value)


def _text(item: object) -> str:
    """Write a number as onnxruntime does; a text is one already."""
    if isinstance(item, bool):
        return "1" if item else "0"
    if not isinstance(item, float):
        return str(item)
    text = f"{item:.8g}"
    return "NaN" if text == "nan" else text.upper() if text.endswith("inf") else text


@plain("Cast", since=6, later={"saturate": 19}, accepts=_is_to_plain_type)
def cast(x: Array, *, to: int, saturate: int = 1) -> Array:
    """Convert to bool, an integer or a float of numpy's own, or to texts.

    saturate concerns only other types. A text of a float has up to 8 digits, in whichever of the
    two notations is shorter, or is INF, -INF or NaN, as onnxruntime writes them.
    """
    if to == DType.STRING.value:
        made = np.empty(x.shape, object)
        made.reshape(-1)[:] = [_text(item) for item in x.ravel().tolist()]
        return made
    return x.astype(DType(to).numpy, copy=False)


@plain("IsNaN", since=9)
def is_nan(x: Array) -> Array:
    """Return where there is no number."""
    return np.asarray(np.isnan(x))


@plain("IsInf", since=10)
def is_inf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Return where there are infinities, of both signs or one."""
    found = np.isinf(x)
    if not detect_negative:
        found &= ~np.signbit(x)
    if not detect_positive:
        found &= np.signbit(x)
    return np.asarray(found)
