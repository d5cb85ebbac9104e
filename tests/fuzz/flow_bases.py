"""Valid models of several nodes to begin with: control flow, sizes from data, states, half floats.

They are for what a single operator does not reach: bodies around products, plans for lengths that
data gives, memory that grows from run to run, casts that are moved or dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from onnx import helper

from onnx_text import parse_proto
from unit.backends.cpu.pieces import test_pieced_network as pieced
from unit.backends.cpu.test_growing_states import DECODER, PAIRS
from unit.backends.cpu.test_moving_windows import WINDOWS, text
from unit.runtime.decompositions.test_einsum import EQUATIONS, shapes_of

from .bases import Base, base_of

__all__ = ["load_flow_bases"]

Array = np.ndarray[Any, Any]

_SIZES = {
    "reshaped": """g (float[2,6] x, float[3,4] w) => (float[A,B] y) {
        n = Shape(x) m = ReduceProd<keepdims = 1>(n) k = Constant<value_ints = [3]>()
        r = Div(m, k) s = Concat<axis = 0>(r, k) h = Reshape(x, s) t = Transpose(h)
        p = MatMul(h, t) y = Relu(p)
    }""",
    "counted": """g (float[4,6] x, float[6,5] w) => (float[A,B] y, int64[1] n) {
        i = NonZero(x) s = Shape(i) two = Constant<value_ints = [2]>() t = Div(s, two)
        one = Constant<value_ints = [1]>() n = Slice(t, one, two)
        five = Constant<value_ints = [6]>() f = Concat<axis = 0>(n, five)
        c = ConstantOfShape<value = float[1] {0.5}>(f) m = MatMul(c, w) y = Softmax(m)
    }""",
    "boxes": """g (float[1,6,4] boxes, float[1,1,6] scores, float[4,3] w) => (float[A,3] y) {
        n = Constant<value_ints = [3]>() i = Constant<value_float = 0.5>()
        s = Constant<value_float = 0.1>() k = NonMaxSuppression(boxes, scores, n, i, s)
        last = Constant<value_int = 2>() at = Gather<axis = 1>(k, last)
        axes = Constant<value_ints = [0]>() b = Squeeze(boxes, axes) r = Gather(b, at)
        m = MatMul(r, w) y = Sigmoid(m)
    }""",
    "chosen": """g (float[1,3,6,6] x, bool[6] c, float[2,3,3,3] w) => (float[A,B,C,D] y) {
        s = Compress<axis = 2>(x, c) p = Conv<pads = [1,1,1,1]>(s, w) r = Relu(p)
        y = GlobalAveragePool(r)
    }""",
    "best": """g (float[4,6] x, int64[1] k, float[4,4] w) => (float[A,B] y, int64[A,B] i) {
        v, i = TopK<axis = 1>(x, k) m = MatMul(w, v) y = LeakyRelu(m)
    }""",
    "numbered": """g (int64 n, float[8,4] w) => (float[A,4] y) {
        z = Constant<value_int = 0>() one = Constant<value_int = 1>() r = Range(z, n, one)
        g = Gather(w, r) t = Transpose(g) m = MatMul(g, t) y = MatMul(m, g)
    }""",
    "parts": """g (float[6,4] x, int64[2] sizes, float[4,4] w) => (float[A,B] y) {
        a, b = Split<axis = 0>(x, sizes) p = MatMul(a, w) q = MatMul(b, w)
        t = Transpose(q) y = MatMul(p, t)
    }""",
    "padded": """g (float[1,2,4,4] x, int64[8] pads, float[3,2,3,3] w) => (float[A,B,C,D] y) {
        e = Pad(x, pads) p = Conv(e, w) y = MaxPool<kernel_shape = [2,2]>(p)
    }""",
    "enlarged": """g (float[1,2,4,4] x, float[4] scales, float[3,2,3,3] w) => (float[A,B,C,D] y) {
        e = Resize<mode = "linear">(x, , scales) y = Conv<pads = [1,1,1,1]>(e, w)
    }""",
    "branch of convolutions": """
        g (bool c, float[1,2,5,5] x, float[3,2,3,3] w, float[3] b) => (float[A,B,C,D] y) {
        t = If(c) <
            then_branch = a () => (float[A,B,C,D] p) { q = Conv(x, w, b) p = Relu(q) },
            else_branch = e () => (float[A,B,C,D] r) { r = Conv<pads = [1,1,1,1]>(x, w) }
        >
        y = AveragePool<kernel_shape = [2,2]>(t)
    }""",
    "distinct": """g (float[6,4] x, float[4,4] w) => (float[A,4] y) {
        u = Unique<axis = 0>(x) m = MatMul(u, w) y = Tanh(m)
    }""",
}  # fmt: skip

_HALVES = {
    "half perceptron": """
        g (float16[3,8] x, float16[8,5] w, float16[5] b) => (float16[3,5] y) {
        m = MatMul(x, w) a = Add(m, b) r = Relu(a) y = Softmax(r)
    }""",
    "half image": """
        g (float16[1,3,6,6] x, float16[4,3,3,3] w, float16[4] b) => (float16[A,B,C,D] y) {
        c = Conv<pads = [1,1,1,1]>(x, w, b) s = Sigmoid(c) m = Mul(c, s)
        p = MaxPool<kernel_shape = [2,2], strides = [2,2]>(m) y = GlobalAveragePool(p)
    }""",
    "half norm": """g (float16[2,3,8] x, float16[8] s, float16[8] b) => (float16[2,3,8] y) {
        n = LayerNormalization(x, s, b) a = Add(n, x) y = Gelu(a)
    }""",
    "half attention": """
        g (float16[2,3,8] q, float16[2,5,8] k, float16[2,5,8] v) => (float16[2,3,8] y) {
        t = Transpose<perm = [0,2,1]>(k) m = MatMul(q, t) s = Softmax(m) y = MatMul(s, v)
    }""",
    "half in the middle": """g (float[3,8] x, float16[8,5] w) => (float[3,5] y) {
        h = Cast<to = 10>(x) m = MatMul(h, w) r = Tanh(m) y = Cast<to = 1>(r)
    }""",
    "half rows": """g (int64[4] i, float16[9,8] w, float16[8] s) => (float16[4,8] y) {
        g = Gather(w, i) a = Mul(g, s) e = ReduceMean<keepdims = 1>(a) y = Sub(a, e)
    }""",
}  # fmt: skip

_ACCUMULATED = """
    g (float[batch,3] x, float[batch,3] past, float[3,3] w)
    => (float[batch,3] y, float[batch,3] present) {
        m = MatMul(past, w) present = Add(m, x) y = Relu(present)
    }
"""
_WRITTEN = """
    g (float[2,4] x, int64[2,1] at, float[6,4] past) => (float[6] y, float[6,4] present) {
        present = ScatterND(past, at, x)
        axes = Constant<value_ints = [1]>()
        y = ReduceSum<keepdims = 0>(present, axes)
    }
"""


def load_flow_bases() -> list[Base]:
    """Make them, the same ones every time."""
    return [*_plain(), *_einsums(), *_states()]


def _plain() -> Iterator[Base]:
    random = np.random.default_rng(12)
    for name, graph in {**_SIZES, **_HALVES}.items():
        model = parse_proto(graph)
        given = {info.name: _given(info, random) for info in model.graph.input}
        yield base_of(name, model, given)
    for name, graph in pieced.TEXTS.items():
        yield base_of(name, parse_proto(graph), pieced.feeds_of(name)[0])


_CHOSEN: Mapping[str, Array] = {
    "sizes": np.array([2, 4]),
    "pads": np.array([0, 0, 1, 1, 0, 0, 0, 1]),
    "scales": np.array([1, 1, 2, 1.5], np.float32),
    "k": np.array([3]),
    "n": np.array(5),
    "c": np.array([1, 0, 1, 1, 0, 1], bool),
    "i": np.array([1, 8, 0, 3]),
}


def _given(info: Any, random: np.random.Generator) -> Array:
    kind = info.type.tensor_type
    shape = [dim.dim_value or 2 for dim in kind.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    chosen = _CHOSEN.get(info.name)
    if chosen is not None and (chosen.dtype, chosen.ndim) == (dtype, len(shape)):
        return chosen
    if dtype.kind == "b":
        return np.ones(shape, bool)
    return random.uniform(-1, 1, shape).astype(dtype)


def _einsums() -> Iterator[Base]:
    random = np.random.default_rng(13)
    for equation in EQUATIONS:
        shapes = shapes_of(equation)
        names = [f"x{place}" for place in range(len(shapes))]
        arrays = [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
        rank = np.einsum(equation, *arrays).ndim
        node = helper.make_node("Einsum", names, ["y"], equation=equation)
        inputs = [
            helper.make_tensor_value_info(name, 1, shape)
            for name, shape in zip(names, shapes, strict=True)
        ]
        output = helper.make_tensor_value_info("y", 1, [None] * rank)
        graph = helper.make_graph([node], "einsum", inputs, [output])
        opsets = [helper.make_opsetid("", 21)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        yield base_of("Einsum", model, dict(zip(names, arrays, strict=True)))


def _states() -> Iterator[Base]:
    random = np.random.default_rng(14)
    x = random.uniform(-1, 1, (2, 2, 8)).astype(np.float32)
    past = np.zeros((2, 2, 0, 4), np.float32)
    yield base_of("decoder", parse_proto(DECODER), {"x": x, "keys": past, "values": past}, PAIRS)
    pair = {"past": "present"}
    square = random.uniform(-1, 1, (3, 3)).astype(np.float32)
    given = {"x": x[:, 0, :3], "past": np.zeros((2, 3), np.float32), "w": square}
    yield base_of("accumulated", parse_proto(_ACCUMULATED), given, pair)
    written = {"x": x[0, :, :4], "at": np.array([[1], [4]]), "past": np.zeros((6, 4), np.float32)}
    yield base_of("written", parse_proto(_WRITTEN), written, pair)
    for body in WINDOWS:
        rows = random.uniform(-1, 1, (2, 3, 3, 4)).astype(np.float32)
        window = np.zeros((2, 3, 7, 4), np.float32)
        yield base_of(
            "window", parse_proto(text(body, window=7)), {"x": rows, "past": window}, pair
        )
