"""Valid models with answers that are worked out here: every device must give them.

They are run before all other cases. A package that refuses or spoils everything alike on all
devices would otherwise have no findings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnx_text import parse_proto

from .drawing import Case, Run

__all__ = ["known_good_cases"]

Array = np.ndarray[Any, Any]
Answer = Callable[..., Array]
_MODELS: list[tuple[str, Answer]] = []


def known_good_cases() -> list[Case]:
    """Make the cases; what they are given is the same every time."""
    state = np.random.default_rng(12)
    return [_case(index, text, answer, state) for index, (text, answer) in enumerate(_MODELS)]


def _case(index: int, text: str, answer: Answer, state: np.random.Generator) -> Case:
    model = parse_proto(text)
    shapes = {
        info.name: [dim.dim_value or 3 for dim in info.type.tensor_type.shape.dim]
        for info in model.graph.input
    }
    feeds = {name: state.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    results: Mapping[str, Array] = {model.graph.output[0].name: answer(**feeds)}
    return Case(
        seed=0,
        index=index,
        name=model.graph.name,
        op_types=tuple(node.op_type for node in model.graph.node),
        model=model.SerializeToString(),
        runs=(Run(feeds, is_valid=True), Run(feeds, is_valid=True)),
        notes=("known to be good",),
        has_extremes=False,
        at_end=True,
        binds=False,
        thread_count=1,
        answer=results,
    )


def _known(text: str) -> Callable[[Answer], Answer]:
    def register(answer: Answer) -> Answer:
        _MODELS.append((text, answer))
        return answer

    return register


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


@_known("perceptron (float[2,3] x, float[3,4] w, float[4] b) => (float[2,4] y)"
        " { a = MatMul(x, w) c = Add(a, b) d = Relu(c) y = Softmax<axis = -1>(d) }")  # fmt: skip
def _perceptron(x: Array, w: Array, b: Array) -> Array:
    return _softmax(np.maximum(x @ w + b, 0))


@_known("open (float[n,4] x) => (float[n,2] y)"
        " <float[4,2] w = {1,-2,3,-4,5,-6,7,-8}, float[2] b = {0.5,-0.5}>"
        " { a = Gemm(x, w, b) y = Tanh(a) }")  # fmt: skip
def _open(x: Array) -> Array:
    w = np.array([[1, -2], [3, -4], [5, -6], [7, -8]], np.float32)
    return np.tanh(x @ w + np.array([0.5, -0.5], np.float32))


@_known("image (float[1,2,4,4] x) => (float[1,1,1,1] y) <float[1,2,1,1] w = {2,-1}>"
        " { a = Conv(x, w) b = Relu(a) c = MaxPool<kernel_shape = [2,2], strides = [2,2]>(b)"
        " y = GlobalAveragePool(c) }")  # fmt: skip
def _image(x: Array) -> Array:
    whole = np.maximum(2 * x[:, 0] - x[:, 1], 0)
    tiles = whole.reshape(1, 2, 2, 2, 2).max(axis=(2, 4))
    return np.asarray(tiles.mean(axis=(1, 2)).reshape(1, 1, 1, 1))


@_known("moved (float[2,6] x, float[2,3,2] z) => (float[3,2,4] y)"
        " <int64[3] shape = {2,3,2}, int64[4] order = {3,0,2,1}>"
        " { a = Reshape(x, shape) b = Concat<axis = 2>(a, z) c = Transpose<perm = [1,0,2]>(b)"
        " y = Gather<axis = 2>(c, order) }")  # fmt: skip
def _moved(x: Array, z: Array) -> Array:
    joined = np.concatenate([x.reshape(2, 3, 2), z], axis=2)
    return joined.transpose(1, 0, 2)[:, :, [3, 0, 2, 1]]


@_known("normed (float[2,8] x, float[8] s) => (float[2,8] y) <int64[1] axes = {1}>"
        " { m = ReduceMean(x, axes) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, axes)"
        " r = Sqrt(v) n = Div(d, r) y = Mul(n, s) }")  # fmt: skip
def _normed(x: Array, s: Array) -> Array:
    return np.asarray((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) * s)
