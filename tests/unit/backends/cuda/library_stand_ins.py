"""Numpy in the place of the vendor's libraries: what an operation computes, and what it refuses.

A stand-in is registered by library and label. ``sizes`` refuses what the real library would, by
DriverError, and says how many bytes each argument has to have: the result is the last but one, and
the workspace is the last. ``compute`` is given the bytes of all of them but the workspace, the
result's as they were, and returns the result, whose bytes are written back. Sums are float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from aioinfer.backends.accelerator.queues.driver import Bytes, DriverError, ErrorKind
from aioinfer.backends.accelerator.queues.library_operation import LibraryOperation

__all__ = ["ACTIVATIONS", "STAND_INS", "TYPES", "StandIn", "activated", "refuse", "stand_in"]

Array = np.ndarray[Any, Any]
Sizes = Callable[[LibraryOperation], Sequence[int]]
Compute = Callable[[LibraryOperation, Sequence[Bytes]], Array]

TYPES: Mapping[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


@dataclass(frozen=True)
class StandIn:
    """One operation of a library; see the head of this file."""

    sizes: Sizes
    compute: Compute


STAND_INS: dict[tuple[str, str], StandIn] = {}
"""By library and label."""


def stand_in(library: str, label: str, sizes: Sizes) -> Callable[[Compute], Compute]:
    """Register what computes an operation."""

    def register(compute: Compute) -> Compute:
        STAND_INS[library, label] = StandIn(sizes, compute)
        return compute

    return register


def refuse(operation: LibraryOperation, reason: str) -> DriverError:
    """Make the error of an operation that the library does not have."""
    text = f"{operation.library} {operation.label}: {reason}; asked for {operation.parameters}"
    return DriverError(ErrorKind.OTHER, text)


_erf = np.frompyfunc(math.erf, 1, 1)

ACTIVATIONS: Mapping[str, Callable[[Array, float], Array]] = {
    "gelu": lambda x, _: 0.5 * x * (1 + _erf(x / math.sqrt(2)).astype(np.float64)),
    "gelu_tanh": lambda x, _: (
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "hardswish": lambda x, _: x * np.clip(x / 6 + 0.5, 0, 1),
    "leaky_relu": lambda x, number: np.where(x < 0, number * x, x),
    "relu": lambda x, _: np.maximum(x, 0),
    "relu6": lambda x, _: np.clip(x, 0, 6),
    "sigmoid": lambda x, _: 1 / (1 + np.exp(-x)),
    "silu": lambda x, _: x / (1 + np.exp(-x)),
    "tanh": lambda x, _: np.tanh(x),
}
"""By the names that operations use; the number is that of ``leaky_relu``."""


def activated(x: Array, activation: str | None, number: float = 0.0) -> Array:
    """Apply an activation, or none, to float64."""
    if activation is None:
        return x
    with np.errstate(over="ignore", invalid="ignore"):
        return ACTIVATIONS[activation](x, number)


_CONV_ACTIVATIONS = frozenset(ACTIVATIONS) - {"gelu_tanh"}
_CONV_PARAMETERS = {
    *("activation", "dilations", "dtype", "filters", "groups", "has_bias", "has_residual"),
    *("has_tf32", "image", "number", "pads_begin", "pads_end", "strides", "workspace_bytes"),
}


def _made_lengths(operation: LibraryOperation) -> tuple[int, int]:
    """Say how large the image is that a convolution makes."""
    made = []
    for axis in range(2):
        length, kernel = operation["image"][2 + axis], operation["filters"][2 + axis]
        whole = length + operation["pads_begin"][axis] + operation["pads_end"][axis]
        reach = (kernel - 1) * operation["dilations"][axis] + 1
        made.append((whole - reach) // operation["strides"][axis] + 1)
    return made[0], made[1]


def _conv_sizes(operation: LibraryOperation) -> list[int]:
    if {name for name, _ in operation.parameters} != _CONV_PARAMETERS:
        raise refuse(operation, f"its parameters are {sorted(_CONV_PARAMETERS)}")
    image, filters, groups = operation["image"], operation["filters"], operation["groups"]
    if len(image) != 4 or len(filters) != 4 or min(*image, *filters, groups) < 1:
        raise refuse(operation, "images and filters have four lengths, of 1 or more")
    if image[1] != filters[1] * groups or filters[0] % groups:
        raise refuse(operation, "channels do not fit the groups")
    windows = [operation[name] for name in ("strides", "dilations", "pads_begin", "pads_end")]
    if any(len(numbers) != 2 for numbers in windows):
        raise refuse(operation, "windows have two axes")
    if min(*windows[0], *windows[1]) < 1 or min(*windows[2], *windows[3]) < 0:
        raise refuse(operation, "strides and dilations are at least 1, and pads at least 0")
    if min(_made_lengths(operation)) < 1:
        raise refuse(operation, "the result has no elements")
    activation = operation["activation"]
    if activation is not None and activation not in _CONV_ACTIVATIONS:
        raise refuse(operation, f"activations are {sorted(_CONV_ACTIVATIONS)}")
    dtype = operation["dtype"]
    if dtype not in TYPES or (operation["has_tf32"] and dtype != "float32"):
        raise refuse(operation, "types are float32, which may be TF32, float16 and bfloat16")
    made = image[0] * filters[0] * math.prod(_made_lengths(operation))
    counts = [math.prod(image), math.prod(filters)]
    counts += [filters[0]] * operation["has_bias"] + [made] * operation["has_residual"] + [made]
    item_bytes = TYPES[dtype].itemsize
    return [*(count * item_bytes for count in counts), operation["workspace_bytes"]]


@stand_in("cudnn", "conv", _conv_sizes)
def convolve(operation: LibraryOperation, arguments: Sequence[Bytes]) -> Array:
    """Compute activation(conv(x, w) + residual + bias) in NHWC."""
    dtype, groups = TYPES[operation["dtype"]], operation["groups"]
    batch, _, height, width = operation["image"]
    outputs, inner, rows, columns = operation["filters"]
    arrays = [item.view(dtype).astype(np.float64) for item in arguments[:-1]]
    x = arrays[0].reshape(batch, height, width, groups, inner)
    w = arrays[1].reshape(groups, outputs // groups, rows, columns, inner)
    pads = list(zip(operation["pads_begin"], operation["pads_end"], strict=True))
    padded = np.pad(x, [(0, 0), *pads, (0, 0), (0, 0)])
    made = _made_lengths(operation)
    places = batch * math.prod(made)
    total = np.zeros((groups, places, outputs // groups))
    for row in range(rows):
        for column in range(columns):
            seen = padded
            for axis, first in enumerate((row, column)):
                stride = operation["strides"][axis]
                start = first * operation["dilations"][axis]
                numbers = slice(start, start + (made[axis] - 1) * stride + 1, stride)
                seen = seen[:, numbers] if axis == 0 else seen[:, :, numbers]
            flat = seen.reshape(places, groups, inner).transpose(1, 0, 2)
            total += flat @ w[:, :, row, column].transpose(0, 2, 1)
    y = total.transpose(1, 0, 2).reshape(places, outputs)
    if operation["has_residual"]:
        y = y + arrays[-1].reshape(y.shape)
    if operation["has_bias"]:
        y = y + arrays[2]
    with np.errstate(over="ignore"):
        return activated(y, operation["activation"], operation["number"]).astype(dtype)


_MATMUL_PARAMETERS = {
    *("a_batch_stride", "a_strides", "activation", "b_batch_stride", "b_strides", "batch"),
    *("dtype", "has_bias", "has_residual", "has_tf32", "k", "m", "n", "workspace_bytes"),
}


def _matmul_sizes(operation: LibraryOperation) -> list[int]:
    if {name for name, _ in operation.parameters} != _MATMUL_PARAMETERS:
        raise refuse(operation, f"its parameters are {sorted(_MATMUL_PARAMETERS)}")
    batch, m, n, k = (operation[name] for name in ("batch", "m", "n", "k"))
    if min(batch, m, n, k) < 1:
        raise refuse(operation, "all lengths are at least 1")
    dtype, activation = operation["dtype"], operation["activation"]
    if dtype not in TYPES or (operation["has_tf32"] and dtype != "float32"):
        raise refuse(operation, "types are float32, which may be TF32, float16 and bfloat16")
    if activation not in (None, "relu", "gelu_tanh"):
        raise refuse(operation, "activations are relu and gelu_tanh")
    if activation and operation["has_residual"]:
        raise refuse(operation, "no activation comes behind a residual")
    follows = operation["has_bias"] or operation["has_residual"] or activation
    if operation.library == "cublas" and follows:
        raise refuse(operation, "it computes a matmul alone")
    counts = []
    for name, rows, columns in (("a", m, k), ("b", k, n)):
        row, column = operation[f"{name}_strides"]
        is_row_major = (column == 1 and row >= columns) or (columns == 1 and row >= 1)
        is_column_major = (row == 1 and column >= rows) or (rows == 1 and column >= 1)
        if not (is_row_major or is_column_major):
            raise refuse(operation, f"{name} is neither row- nor column-major")
        step = operation[f"{name}_batch_stride"]
        counts.append((batch - 1) * step + (rows - 1) * row + (columns - 1) * column + 1)
    made = batch * m * n
    counts += [n] * operation["has_bias"] + [made] * operation["has_residual"] + [made]
    item_bytes = TYPES[dtype].itemsize
    return [*(count * item_bytes for count in counts), operation["workspace_bytes"]]


@stand_in("cublas", "matmul", _matmul_sizes)
@stand_in("cublaslt", "matmul", _matmul_sizes)
def multiply(operation: LibraryOperation, arguments: Sequence[Bytes]) -> Array:
    """Compute activation(A B + bias), or A B + residual + bias, row-major."""
    dtype = TYPES[operation["dtype"]]
    batch, m, n, k = (operation[name] for name in ("batch", "m", "n", "k"))
    arrays = [item.view(dtype) for item in arguments[:-1]]
    left, right = (
        _strided(array, (batch, *shape), (operation[f"{name}_batch_stride"], *strides))
        for array, name, shape, strides in (
            (arrays[0], "a", (m, k), operation["a_strides"]),
            (arrays[1], "b", (k, n), operation["b_strides"]),
        )
    )
    y = left.astype(np.float64) @ right.astype(np.float64)
    if operation["has_bias"]:
        y = y + arrays[2].astype(np.float64)
    if operation["has_residual"]:
        y = y + arrays[-1].astype(np.float64).reshape(y.shape)
    with np.errstate(over="ignore"):
        return activated(y, operation["activation"]).astype(dtype)


def _strided(array: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """See flat memory in a shape; strides are in elements, and checked by the sizes."""
    steps = [stride * array.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(array, shape, steps)


_ATTENTION_PARAMETERS = {
    *("batch", "dtype", "has_mask", "head", "heads", "k_strides", "keys", "mask_shape"),
    *("o_strides", "q_strides", "queries", "scale", "v_strides", "workspace_bytes"),
}


def _attention_sizes(operation: LibraryOperation) -> list[int]:
    if {name for name, _ in operation.parameters} != _ATTENTION_PARAMETERS:
        raise refuse(operation, f"its parameters are {sorted(_ATTENTION_PARAMETERS)}")
    if operation["dtype"] not in ("float16", "bfloat16"):
        raise refuse(operation, "types are float16 and bfloat16")
    if operation["head"] % 8 or not 0 < operation["head"] <= 128:
        raise refuse(operation, "the columns of a head are a multiple of 8, and at most 128")
    counts = []
    for name, shape in _attention_shapes(operation).items():
        strides = operation[f"{name}_strides"]
        if len(strides) != 4 or strides[3] != 1:
            raise refuse(operation, f"{name} has four strides, the last of which is 1")
        lasts = ((length - 1) * stride for length, stride in zip(shape, strides, strict=True))
        counts.append(sum(lasts) + 1)
    if operation["has_mask"]:
        whole = tuple(operation[name] for name in ("batch", "heads", "queries", "keys"))
        pairs = list(zip(operation["mask_shape"], whole, strict=True))
        if any(length not in (1, most) for length, most in pairs) or pairs[3][0] != whole[3]:
            raise refuse(operation, "a mask broadcasts, but not along the keys")
        counts.insert(3, math.prod(operation["mask_shape"]))
    item_bytes = TYPES[operation["dtype"]].itemsize
    return [*(count * item_bytes for count in counts), operation["workspace_bytes"]]


def _attention_shapes(operation: LibraryOperation) -> dict[str, tuple[int, ...]]:
    batch, heads, head = (operation[name] for name in ("batch", "heads", "head"))
    rows = {"q": "queries", "k": "keys", "v": "keys", "o": "queries"}
    return {name: (batch, heads, operation[kind], head) for name, kind in rows.items()}


@stand_in("cudnn", "attention", _attention_sizes)
def attend(operation: LibraryOperation, arguments: Sequence[Bytes]) -> Array:
    """Compute softmax(scale * Q K' + mask) V for each head."""
    dtype = TYPES[operation["dtype"]]
    shapes = _attention_shapes(operation)
    query, key, value = (
        _strided(item.view(dtype), shapes[name], operation[f"{name}_strides"]).astype(np.float64)
        for name, item in zip("qkv", arguments, strict=False)
    )
    scores = operation["scale"] * (query @ key.swapaxes(2, 3))
    if operation["has_mask"]:
        mask = arguments[3].view(dtype).reshape(operation["mask_shape"])
        scores = scores + mask.astype(np.float64)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=3, keepdims=True))
        mixed = weights / weights.sum(axis=3, keepdims=True) @ value
    made: Array = np.array(arguments[-1]).view(dtype)
    _strided(made, shapes["o"], operation["o_strides"])[...] = mixed
    return made
