"""Numpy twins of native_elementwise.c and native_reductions.c."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.graph import DType
from .elementwise_chain import FLOAT_STEPS, INTEGER_STEPS
from .native import view_at

__all__ = ["ELEMENTWISE_KERNELS", "FLOAT_FUNCTIONS", "INTEGER_FUNCTIONS"]

Array = np.ndarray[Any, Any]
Function = Callable[[Any, Any, Any, Any], Any]
Kernel = Callable[[Sequence[int], Sequence[int]], None]

_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _error(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(np.float64)


def _bounded(x: Array, low: float, high: float) -> Array:
    return np.asarray(np.minimum(np.maximum(x, low), high))


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _power(x: Array, a: float, b: float) -> Array:
    return np.asarray(a / x if b == -1 else a * np.power(x, b))


FLOAT_FUNCTIONS: Mapping[str, Function] = {
    "relu": lambda x, y, a, b: np.where(x < 0, a * x if a else 0.0, x),
    "tanh": lambda x, y, a, b: np.tanh(x),
    "elu": lambda x, y, a, b: _elu(x, a),
    "square": lambda x, y, a, b: x * x,
    "abs": lambda x, y, a, b: np.abs(x),
    "sqrt": lambda x, y, a, b: np.sqrt(x),
    "linear": lambda x, y, a, b: a * x + b if b else a * x,
    "softplus": lambda x, y, a, b: _softplus(a * x) / a,
    "hardsigmoid": lambda x, y, a, b: _bounded(a * x + b, 0, 1),
    "sigmoid": lambda x, y, a, b: _sigmoid(x),
    "exp": lambda x, y, a, b: np.exp(x),
    "gelu_tanh": lambda x, y, a, b: _gelu_tanh(x),
    "swish": lambda x, y, a, b: x * _sigmoid(a * x),
    "log": lambda x, y, a, b: np.log(x),
    "clip": lambda x, y, a, b: _bounded(x, a, b),
    "pow": lambda x, y, a, b: _power(x, a, b),
    "gelu_erf": lambda x, y, a, b: 0.5 * x * (1 + _error(x * math.sqrt(0.5))),
    "round": lambda x, y, a, b: np.rint(x),
    "mish": lambda x, y, a, b: x * np.tanh(_softplus(x)),
    "hardswish": lambda x, y, a, b: x * _bounded(a * x + b, 0, 1),
    "floor": lambda x, y, a, b: np.floor(x),
    "ceil": lambda x, y, a, b: np.ceil(x),
    "sign": lambda x, y, a, b: np.sign(x),
    "erf": lambda x, y, a, b: _error(x),
    "sin": lambda x, y, a, b: np.sin(x),
    "cos": lambda x, y, a, b: np.cos(x),
    "tan": lambda x, y, a, b: np.tan(x),
    "asin": lambda x, y, a, b: np.arcsin(x),
    "acos": lambda x, y, a, b: np.arccos(x),
    "atan": lambda x, y, a, b: np.arctan(x),
    "sinh": lambda x, y, a, b: np.sinh(x),
    "cosh": lambda x, y, a, b: np.cosh(x),
    "asinh": lambda x, y, a, b: np.arcsinh(x),
    "acosh": lambda x, y, a, b: np.arccosh(x),
    "atanh": lambda x, y, a, b: np.arctanh(x),
    "softsign": lambda x, y, a, b: x / (1 + np.abs(x)),
    "celu": lambda x, y, a, b: np.maximum(x, 0) + np.where(x < 0, a * np.expm1(x / a), 0),
    "selu": lambda x, y, a, b: b * _elu(x, a),
    "thresholded": lambda x, y, a, b: np.where(x > a, x, 0),
    "shrink": lambda x, y, a, b: np.where(x < -a, x + b, np.where(x > a, x - b, 0)),
    "isnan": lambda x, y, a, b: np.isnan(x),
    "isinf": lambda x, y, a, b: (np.isneginf(x) & bool(a)) | (np.isposinf(x) & bool(b)),
    "add": lambda x, y, a, b: x + y,
    "sub": lambda x, y, a, b: x - y,
    "mul": lambda x, y, a, b: x * y,
    "div": lambda x, y, a, b: x / y,
    "max": lambda x, y, a, b: np.maximum(x, y),
    "min": lambda x, y, a, b: np.minimum(x, y),
    "power": lambda x, y, a, b: np.power(x, y),
    "mod": lambda x, y, a, b: np.mod(x, y),
    "fmod": lambda x, y, a, b: np.fmod(x, y),
    "prelu": lambda x, y, a, b: np.where(x < 0, x * y, x),
    "equal": lambda x, y, a, b: x == y,
    "less": lambda x, y, a, b: x < y,
    "less_or_equal": lambda x, y, a, b: x <= y,
    "greater": lambda x, y, a, b: x > y,
    "greater_or_equal": lambda x, y, a, b: x >= y,
}
"""What a step of ``float_chain`` makes of x, its operand y, and its two numbers."""


def _quotient(x: Array, y: Array) -> Array:
    quotient, rest = np.floor_divide(x, y), np.remainder(x, y)
    return np.asarray(quotient + ((rest != 0) & ((x < 0) ^ (y < 0))))


def _integer_power(x: Array, y: Array) -> Array:
    return np.asarray(np.power(x, np.maximum(y, 0)))


INTEGER_FUNCTIONS: Mapping[str, Function] = {
    "abs": lambda x, y, a, b: np.abs(x),
    "neg": lambda x, y, a, b: -x,
    "sign": lambda x, y, a, b: np.sign(x),
    "invert": lambda x, y, a, b: ~x,
    "not": lambda x, y, a, b: x == 0,
    "relu": lambda x, y, a, b: np.maximum(x, a),
    "add": lambda x, y, a, b: x + y,
    "sub": lambda x, y, a, b: x - y,
    "mul": lambda x, y, a, b: x * y,
    "div": lambda x, y, a, b: _quotient(x, y),
    "max": lambda x, y, a, b: np.maximum(x, y),
    "min": lambda x, y, a, b: np.minimum(x, y),
    "power": lambda x, y, a, b: _integer_power(x, y),
    "mod": lambda x, y, a, b: np.mod(x, y),
    "fmod": lambda x, y, a, b: np.fmod(x, y),
    "prelu": lambda x, y, a, b: np.where(x < 0, x * y, x),
    "equal": lambda x, y, a, b: x == y,
    "less": lambda x, y, a, b: x < y,
    "less_or_equal": lambda x, y, a, b: x <= y,
    "greater": lambda x, y, a, b: x > y,
    "greater_or_equal": lambda x, y, a, b: x >= y,
    "and": lambda x, y, a, b: x & y,
    "or": lambda x, y, a, b: x | y,
    "xor": lambda x, y, a, b: x ^ y,
    "shift_left": lambda x, y, a, b: np.where((y < 0) | (y > 63), 0, x << (y & 63)),
    "shift_right": lambda x, y, a, b: np.where((y < 0) | (y > 63), 0, x >> (y & 63)),
}
"""What a step of ``integer_chain`` makes of x, its operand y, and its two numbers."""


def _strided(
    address: int, dtype: np.dtype[Any], lengths: Sequence[int], strides: Sequence[int]
) -> Array:
    if 0 in lengths:
        return np.empty(tuple(lengths), dtype)
    reach = sum((n - 1) * stride for n, stride in zip(lengths, strides, strict=True))
    memory = view_at(address, reach + dtype.itemsize)
    return np.ndarray(tuple(lengths), dtype, memory, 0, tuple(strides))


def _chain(
    names: Sequence[str], functions: Mapping[str, Function], dtype: type, is_float: bool
) -> Kernel:
    def run(data: Sequence[int], parameters: Sequence[int]) -> None:
        count, rank, step_count = parameters[:3]
        lengths = parameters[3 : 3 + rank]
        arrays = []
        for index in range(count):
            at = 3 + rank + index * (1 + rank)
            element = DType(parameters[at]).numpy
            strides = parameters[at + 1 : at + 1 + rank]
            arrays.append(_strided(data[index], element, lengths, strides))
        at = 3 + rank + count * (1 + rank)
        made: Array = arrays[0].astype(dtype)
        with np.errstate(all="ignore"):
            for number, operand, *numbers in _rows(parameters[at : at + 4 * step_count], 4):
                a, b = map(_double, numbers) if is_float else numbers
                other: Array | None = arrays[operand].astype(dtype) if operand else None
                made = np.asarray(functions[names[number]](made, other, a, b)).astype(dtype)
            arrays[-1][...] = made.astype(arrays[-1].dtype)

    return run


def _rows(words: Sequence[int], width: int) -> list[Sequence[int]]:
    return [words[at : at + width] for at in range(0, len(words), width)]


def _double(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return number


def where(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Choose between two operands; see native_elementwise.c."""
    item, rank, *words = parameters
    lengths, strides = words[:rank], _rows(words[rank : 5 * rank], 4)
    types = [np.dtype(np.bool_), *[np.dtype(f"V{item}")] * 3]
    condition, x, y, target = (
        _strided(data[index], dtype, lengths, [row[index] for row in strides])
        for index, dtype in enumerate(types)
    )
    target[...] = np.where(condition, x, y)


def _log_sum_exp(x: Array) -> Array:
    largest = np.max(x, axis=-1, initial=-np.inf)
    shift = np.where(np.isfinite(largest), largest, 0)
    return np.asarray(np.log(np.sum(np.exp(x - shift[..., None]), axis=-1)) + shift)


_REDUCTIONS: Sequence[Callable[[Array], Any]] = (
    lambda x: np.sum(x, axis=-1),
    lambda x: np.sum(x, axis=-1) / x.shape[-1],
    lambda x: np.max(x, axis=-1, initial=-np.inf),
    lambda x: np.min(x, axis=-1, initial=np.inf),
    lambda x: np.prod(x, axis=-1),
    lambda x: np.sum(np.abs(x), axis=-1),
    lambda x: np.sqrt(np.sum(x * x, axis=-1)),
    lambda x: np.sum(x * x, axis=-1),
    lambda x: np.log(np.sum(x, axis=-1)),
    _log_sum_exp,
)


def reduce(data: Sequence[int], parameters: Sequence[int]) -> None:
    """Reduce the axes that the result has not; see native_reductions.c."""
    kind, given, wanted, kept_count, reduced_count, length, source, result = parameters[:8]
    words = parameters[8:]
    kept = [tuple(row) for row in _rows(words[: 3 * kept_count], 3)]
    at = 3 * kept_count
    reduced = [tuple(row) for row in _rows(words[at : at + 2 * reduced_count], 2)]
    if result:
        kept.append((length, source, result))
    else:
        reduced.append((length, source))
    axes = [*((n, stride) for n, stride, _ in kept), *reduced]
    array = _strided(
        data[0], DType(given).numpy, [n for n, _ in axes], [stride for _, stride in axes]
    )
    target = _strided(
        data[1], DType(wanted).numpy, [n for n, _, _ in kept], [to for _, _, to in kept]
    )
    flat = array.astype(np.float64).reshape(*target.shape, math.prod(n for n, _ in reduced))
    with np.errstate(all="ignore"):
        target[...] = np.asarray(_REDUCTIONS[kind](flat)).astype(target.dtype)


ELEMENTWISE_KERNELS: Mapping[str, Kernel] = {
    "float_chain": _chain(FLOAT_STEPS, FLOAT_FUNCTIONS, np.float32, True),
    "integer_chain": _chain(INTEGER_STEPS, INTEGER_FUNCTIONS, np.int64, False),
    "where": where,
    "reduce": reduce,
}
