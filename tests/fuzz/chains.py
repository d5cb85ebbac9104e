"""Chains of a few nodes, so that fusions, views and copies are met: operators to put behind one.

A link is a function of chance and of what comes in; it returns the node's operator, the parameters
it reads besides, its attributes, and the shape of its result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from onnx import helper

from .draft import Draft

__all__ = ["append_links", "fresh_chain"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Link = tuple[str, list[Array], dict[str, Any], Shape]
LINKS: list[tuple[int, Callable[[Random, Shape], Link | None]]] = []

_UNARY = (
    *("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Exp", "Erf", "Softplus", "Gelu", "HardSwish"),
    *("Elu", "LeakyRelu", "Selu", "Sqrt", "Floor", "Identity", "Mish", "HardSigmoid", "Swish"),
    *("Celu", "ThresholdedRelu", "Softsign", "Round", "Ceil", "Sin", "Sign", "Reciprocal"),
)
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "PRelu", "Pow")
_REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"),
    *("ReduceSumSquare", "ReduceLogSumExp", "ReduceProd", "ReduceLogSum"),
)
_MOST_ELEMENTS = 4000


def append_links(draft: Draft, rng: Random, source: str, shape: Shape, count: int) -> None:
    """Put nodes behind a float32 value; what the last one makes becomes an output, too."""
    for _ in range(count):
        weights = [weight for weight, _ in LINKS]
        for _ in range(20):
            link = rng.choices(LINKS, weights)[0][1](rng, shape)
            if link is not None and math.prod(link[3]) <= _MOST_ELEMENTS:
                break
        else:
            return
        op_type, parameters, attributes, made = link
        number = len(draft.nodes)
        names = [f"p{number}_{place}" for place in range(len(parameters))]
        draft.parameters.update(zip(names, parameters, strict=True))
        inputs = [source, *names]
        result = f"t{number}"
        if op_type in _BINARY and rng.random() < 0.3:
            inputs = [source, source]  # beside itself
            for name in names:
                del draft.parameters[name]
            made = shape
        elif op_type in ("Add", "Mul") and rng.random() < 0.3:
            inputs.reverse()
        draft.nodes.append(
            helper.make_node(op_type, inputs, [result], name=f"n{number}", **attributes)
        )
        draft.results[result] = np.broadcast_to(np.float32(0), made)
        draft.notes.append(f"then {op_type}")
        if source in draft.outputs and rng.random() < 0.6:
            draft.outputs.remove(source)
        source, shape = result, made
    if source not in draft.outputs:
        draft.outputs.append(source)


def fresh_chain(rng: Random) -> Draft:
    """Begin a chain with an input of its own."""
    shape = tuple(rng.choice((1, 2, 3, 4, 5, 8)) for _ in range(rng.randrange(0, 5)))
    draft = Draft([], {"x": _numbers(rng, shape)}, [], {}, {"": rng.choice((18, 21, 23, 24))}, 10)
    append_links(draft, rng, "x", shape, rng.randrange(2, 6))
    return draft


def _numbers(rng: Random, shape: Shape) -> Array:
    made = np.random.default_rng(rng.randrange(2**32)).uniform(0.25, 2.0, shape)
    return np.asarray(made, np.float32)


def _integers(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def _link(weight: int) -> Callable[[Callable[[Random, Shape], Link | None]], Any]:
    def register(make: Callable[[Random, Shape], Link | None]) -> Any:
        LINKS.append((weight, make))
        return make

    return register


def _some_axes(rng: Random, rank: int) -> list[int]:
    axes = rng.sample(range(rank), rng.randrange(1, rank + 1))
    return [axis - rank if rng.random() < 0.3 else axis for axis in axes]


@_link(8)
def _unary(rng: Random, shape: Shape) -> Link:
    return rng.choice(_UNARY), [], {}, shape


@_link(8)
def _binary(rng: Random, shape: Shape) -> Link:
    other = [length if rng.random() < 0.6 else 1 for length in shape]
    op_type = rng.choice(_BINARY)
    cut = rng.randrange(len(other) + 1)
    return op_type, [_numbers(rng, tuple(other[cut:]))], {}, shape


@_link(2)
def _widened(rng: Random, shape: Shape) -> Link | None:
    """Broadcast what comes in."""
    if 1 not in shape:
        return "Add", [_numbers(rng, (2, *shape))], {}, (2, *shape)
    other = tuple(3 if length == 1 else length for length in shape)
    return "Add", [_numbers(rng, other)], {}, other


@_link(2)
def _clip(rng: Random, shape: Shape) -> Link:
    return "Clip", [np.array(0.5, np.float32), np.array(1.5, np.float32)], {}, shape


@_link(3)
def _transpose(rng: Random, shape: Shape) -> Link | None:
    if not shape:
        return None
    order = rng.sample(range(len(shape)), len(shape))
    return "Transpose", [], {"perm": order}, tuple(shape[axis] for axis in order)


@_link(4)
def _reshape(rng: Random, shape: Shape) -> Link | None:
    count = math.prod(shape)
    ways: list[Shape] = [(count,), (1, count), (count, 1), shape[::-1], (*shape, 1)]
    for factor in (2, 3, 4):
        if count % factor == 0:
            ways.append((factor, count // factor))
    made = rng.choice(ways)
    asked = list(made)
    if asked and count and rng.random() < 0.5:
        asked[rng.randrange(len(asked))] = -1
    return "Reshape", [_integers(*asked)], {}, made


@_link(2)
def _flatten(rng: Random, shape: Shape) -> Link:
    axis = rng.randrange(len(shape) + 1)
    return "Flatten", [], {"axis": axis}, (math.prod(shape[:axis]), math.prod(shape[axis:]))


@_link(2)
def _unsqueeze(rng: Random, shape: Shape) -> Link:
    axis = rng.randrange(len(shape) + 1)
    return "Unsqueeze", [_integers(axis)], {}, (*shape[:axis], 1, *shape[axis:])


@_link(2)
def _squeeze(rng: Random, shape: Shape) -> Link | None:
    ones = [axis for axis, length in enumerate(shape) if length == 1]
    if not ones:
        return None
    axis = rng.choice(ones)
    return "Squeeze", [_integers(axis)], {}, (*shape[:axis], *shape[axis + 1 :])


@_link(3)
def _slice(rng: Random, shape: Shape) -> Link | None:
    if not shape or not min(shape):
        return None
    axis = rng.randrange(len(shape))
    length = shape[axis]
    start, step = rng.randrange(length), rng.choice((1, 1, 2, -1, -2))
    end = length if step > 0 else -(2**40)
    count = len(range(length)[start::step])
    made = (*shape[:axis], count, *shape[axis + 1 :])
    numbers = (start, end, axis, step)
    return "Slice", [_integers(number) for number in numbers], {}, made


@_link(3)
def _gather(rng: Random, shape: Shape) -> Link | None:
    if not shape or not min(shape):
        return None
    axis = rng.randrange(len(shape))
    places = np.array([rng.randrange(-shape[axis], shape[axis]) for _ in range(3)], np.int64)
    if rng.random() < 0.3:
        places = places[0]  # a scalar
    made = (*shape[:axis], *np.shape(places), *shape[axis + 1 :])
    return "Gather", [np.asarray(places)], {"axis": axis}, made


@_link(2)
def _concat(rng: Random, shape: Shape) -> Link | None:
    if not shape:
        return None
    axis = rng.randrange(len(shape))
    made = (*shape[:axis], shape[axis] + 2, *shape[axis + 1 :])
    other = _numbers(rng, (*shape[:axis], 2, *shape[axis + 1 :]))
    return "Concat", [other], {"axis": axis}, made


@_link(2)
def _pad(rng: Random, shape: Shape) -> Link | None:
    if not shape or not min(shape):
        return None
    pads = [rng.randrange(2) for _ in range(2 * len(shape))]
    made = tuple(length + pads[axis] + pads[axis + len(shape)] for axis, length in enumerate(shape))
    mode = rng.choice(("constant", "edge", "wrap")) if rng.random() < 0.5 else "constant"
    return "Pad", [_integers(*pads)], {"mode": mode}, made


@_link(2)
def _expand(rng: Random, shape: Shape) -> Link:
    made = (2, *shape)
    return "Expand", [_integers(*made)], {}, made


@_link(1)
def _tile(rng: Random, shape: Shape) -> Link | None:
    if not shape:
        return None
    times = [rng.choice((1, 1, 2)) for _ in shape]
    made = tuple(length * time for length, time in zip(shape, times, strict=True))
    return "Tile", [_integers(*times)], {}, made


@_link(4)
def _reduction(rng: Random, shape: Shape) -> Link | None:
    if not shape or not min(shape):
        return None
    axes = _some_axes(rng, len(shape))
    keeps = rng.random() < 0.5
    gone = {axis % len(shape) for axis in axes}
    made = [1 if axis in gone else length for axis, length in enumerate(shape)]
    if not keeps:
        made = [length for axis, length in enumerate(shape) if axis not in gone]
    return rng.choice(_REDUCTIONS), [_integers(*axes)], {"keepdims": int(keeps)}, tuple(made)


@_link(3)
def _softmax(rng: Random, shape: Shape) -> Link | None:
    if not shape:
        return None
    op_type = rng.choice(("Softmax", "LogSoftmax"))
    return op_type, [], {"axis": rng.randrange(-len(shape), len(shape))}, shape


@_link(3)
def _layer_norm(rng: Random, shape: Shape) -> Link | None:
    if not shape or not min(shape):
        return None
    axis = rng.randrange(len(shape)) if rng.random() < 0.3 else -1
    row = shape[axis:] if axis >= 0 else shape[-1:]
    parameters = [_numbers(rng, row), _numbers(rng, row)][: rng.randrange(1, 3)]
    return "LayerNormalization", parameters, {"axis": axis}, shape


@_link(6)
def _matmul(rng: Random, shape: Shape) -> Link | None:
    if len(shape) < 2:
        return None
    columns = rng.choice((1, 3, 8, 17))
    batch = shape[:-2] if rng.random() < 0.4 else ()
    return "MatMul", [_numbers(rng, (*batch, shape[-1], columns))], {}, (*shape[:-1], columns)


@_link(3)
def _gemm(rng: Random, shape: Shape) -> Link | None:
    if len(shape) != 2:
        return None
    columns, is_turned = rng.choice((1, 3, 8)), rng.random() < 0.5
    weights = (columns, shape[1]) if is_turned else (shape[1], columns)
    parameters = [_numbers(rng, weights), _numbers(rng, (columns,))][: rng.randrange(1, 3)]
    return "Gemm", parameters, {"transB": int(is_turned)}, (shape[0], columns)


@_link(8)
def _convolution(rng: Random, shape: Shape) -> Link | None:
    if len(shape) not in (3, 4) or not min(shape):
        return None
    spatial, maps = len(shape) - 2, rng.choice((1, 3, 8))
    parameters = [_numbers(rng, (maps, shape[1], *[3] * spatial)), _numbers(rng, (maps,))]
    attributes = {"pads": [1] * 2 * spatial}
    return "Conv", parameters[: rng.randrange(1, 3)], attributes, (shape[0], maps, *shape[2:])


@_link(6)
def _channel_norm(rng: Random, shape: Shape) -> Link | None:
    if len(shape) < 3 or not min(shape):
        return None
    parts = [_numbers(rng, (shape[1],)) for _ in range(4)]
    if rng.random() < 0.5:
        return "BatchNormalization", parts, {}, shape
    return "InstanceNormalization", parts[:2], {}, shape


@_link(6)
def _pool(rng: Random, shape: Shape) -> Link | None:
    if len(shape) not in (3, 4) or not min(shape):
        return None
    op_type = rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op_type.startswith("Global"):
        return op_type, [], {}, (*shape[:2], *[1] * (len(shape) - 2))
    if min(shape[2:]) < 2:
        return None
    made = (*shape[:2], *(length - 1 for length in shape[2:]))
    return op_type, [], {"kernel_shape": [2] * (len(shape) - 2)}, made


@_link(2)
def _resize(rng: Random, shape: Shape) -> Link | None:
    if len(shape) not in (3, 4) or not min(shape):
        return None
    made = (*shape[:2], *(length * 2 for length in shape[2:]))
    mode = rng.choice(("nearest", "linear"))
    empty = np.zeros(0, np.float32)
    return "Resize", [empty, empty, _integers(*made)], {"mode": mode}, made


@_link(1)
def _least_of_three(rng: Random, shape: Shape) -> Link:
    return "Min", [_numbers(rng, shape), _numbers(rng, shape)], {}, shape


@_link(2)
def _cast(rng: Random, shape: Shape) -> Link:
    return "Cast", [], {"to": 1}, shape


@_link(1)
def _cumsum(rng: Random, shape: Shape) -> Link | None:
    if not shape:
        return None
    return "CumSum", [np.array(rng.randrange(len(shape)), np.int64)], {}, shape
