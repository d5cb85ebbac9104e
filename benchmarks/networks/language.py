"""Transformers and a recurrent network, decomposed as exporters write them.

With a symbolic batch or sequence the shapes for Reshape are computed in the graph from Shape, as
exporters do with dynamic axes; with numbers they are constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from networks.builder import Builder, Dim

INT64 = onnx.TensorProto.INT64
MASKED = -10_000.0  # small enough for a softmax, and no infinity in bfloat16


@dataclass(frozen=True)
class Encoder:
    """What a transformer's layers have in common."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int = 30_522
    fused_norm: bool = False  # LayerNormalization, or the nodes that it consists of


class TransformerBuilder(Builder):
    """Layers of transformers on values of shape (batch, sequence, width)."""

    def __init__(self, name: str, seed: int, batch: Dim, sequence: Dim, kind: Encoder) -> None:
        super().__init__(name, seed)
        self.batch, self.sequence, self.kind = batch, sequence, kind

    def shape(self, like: str, *dims: Dim) -> str:
        """Write a shape; "batch" and "sequence" are taken from a value's first two dimensions."""
        known = {"batch": self.batch, "sequence": self.sequence}
        given = [known.get(dim, dim) if isinstance(dim, str) else dim for dim in dims]
        numbers = [dim for dim in given if isinstance(dim, int)]
        if len(numbers) == len(dims):
            return self.integers(*numbers)
        measured = self.node("Shape", like)
        parts = []
        for dim, value in zip(dims, given, strict=True):
            if isinstance(value, int):
                parts.append(self.integers(value))
            else:
                axis = self.constant(["batch", "sequence"].index(str(dim)), np.int64)
                one = self.node("Gather", measured, axis, axis=0)
                parts.append(self.node("Unsqueeze", one, self.integers(0)))
        return self.node("Concat", *parts, axis=0)

    def weights(self, inputs: int, outputs: int) -> str:
        return self.constant(self.normal((inputs, outputs), math.sqrt(1 / inputs)))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        product = self.node("MatMul", x, self.weights(inputs, outputs))
        return self.node("Add", self.constant(self.normal((outputs,), 0.05)), product)

    def embedding(self, ids: str, count: int) -> str:
        table = self.constant(self.normal((count, self.kind.width)))
        return self.node("Gather", table, ids)

    def norm(self, x: str) -> str:
        width = self.kind.width
        scale = self.constant(self.chance.uniform(0.8, 1.25, width))
        shift = self.constant(self.normal((width,), 0.1))
        if self.kind.fused_norm:
            return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        squares = self.node("Pow", centred, self.constant(2))
        variance = self.node("ReduceMean", squares, axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", variance, self.constant(1e-5)))
        normed = self.node("Div", centred, deviation)
        return self.node("Add", self.node("Mul", normed, scale), shift)

    def gelu(self, x: str) -> str:
        erf = self.node("Erf", self.node("Div", x, self.constant(math.sqrt(2))))
        product = self.node("Mul", x, self.node("Add", erf, self.constant(1)))
        return self.node("Mul", product, self.constant(0.5))

    def tanh_gelu(self, x: str) -> str:
        cube = self.node("Pow", x, self.constant(3))
        inner = self.node("Add", x, self.node("Mul", cube, self.constant(0.044715)))
        tanh = self.node("Tanh", self.node("Mul", inner, self.constant(math.sqrt(2 / math.pi))))
        half = self.node("Mul", x, self.constant(0.5))
        return self.node("Mul", half, self.node("Add", tanh, self.constant(1)))

    def heads(self, x: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
        count, width = self.kind.heads, self.kind.width
        split = self.node("Reshape", x, self.shape(x, "batch", "sequence", count, width // count))
        return self.node("Transpose", split, perm=perm)

    def joined(self, x: str, like: str) -> str:
        turned = self.node("Transpose", x, perm=[0, 2, 1, 3])
        return self.node("Reshape", turned, self.shape(like, "batch", "sequence", self.kind.width))

    def attention(self, x: str, mask: str | None) -> str:
        """Attend with separate projections; the mask is added to the scores."""
        width = self.kind.width
        query = self.heads(self.linear(x, width, width))
        key = self.heads(self.linear(x, width, width), (0, 2, 3, 1))
        value = self.heads(self.linear(x, width, width))
        root = self.constant(math.sqrt(width // self.kind.heads))
        scores = self.node("Div", self.node("MatMul", query, key), root)
        if mask is not None:
            scores = self.node("Add", scores, mask)
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)
        return self.linear(self.joined(mixed, x), width, width)

    def feed_forward(self, x: str) -> str:
        width, hidden = self.kind.width, self.kind.hidden
        return self.linear(self.gelu(self.linear(x, width, hidden)), hidden, width)

    def added_mask(self, attention_mask: str) -> str:
        """Turn ones and zeros, (batch, sequence), into what is added to the scores."""
        rows = self.node("Unsqueeze", attention_mask, self.integers(1))
        wide = self.node("Unsqueeze", rows, self.integers(2))
        kept = self.node("Cast", wide, to=onnx.TensorProto.FLOAT)
        masked = self.node("Sub", self.constant(1), kept)
        return self.node("Mul", masked, self.constant(MASKED))

    def positions(self, ids: str, most: int) -> str:
        """Slice the positions 0, 1, ..., (1, sequence), out of a constant."""
        every = self.constant(np.arange(most)[None], np.int64)
        end = self.shape(ids, "sequence")
        return self.node("Slice", every, self.integers(0), end, self.integers(1))


def bert(
    name: str, kind: Encoder, batch: Dim, seed: int, sequence: Dim, has_pooler: bool
) -> onnx.ModelProto:
    """Encoder with the norms after the sums; inputs are ids, mask and types, int64."""
    net = TransformerBuilder(name, seed, batch, sequence, kind)
    shape = [batch, sequence]
    ids = net.input("input_ids", shape, INT64)
    mask = net.added_mask(net.input("attention_mask", shape, INT64))
    types = net.embedding(net.input("token_type_ids", shape, INT64), 2)
    words = net.node("Add", net.embedding(ids, kind.vocabulary), types)
    x = net.norm(net.node("Add", words, net.embedding(net.positions(ids, 512), 512)))
    for _ in range(kind.layers):
        x = net.norm(net.node("Add", net.attention(x, mask), x))
        x = net.norm(net.node("Add", net.feed_forward(x), x))
    net.output(x, "last_hidden_state", [batch, sequence, kind.width])
    if has_pooler:
        first = net.node("Gather", x, net.constant(0, np.int64), axis=1)
        bias = net.constant(net.normal((kind.width,), 0.05))
        dense = net.node("Gemm", first, net.weights(kind.width, kind.width), bias)
        net.output(net.node("Tanh", dense), "pooler_output", [batch, kind.width])
    return net.model()


BERT_BASE = Encoder(layers=12, width=768, heads=12, hidden=3072)
MINILM_L6 = Encoder(layers=6, width=384, heads=12, hidden=1536)
VIT_SMALL = Encoder(layers=12, width=384, heads=6, hidden=1536)
GPT2_LIKE = Encoder(layers=4, width=768, heads=12, hidden=3072, vocabulary=8192)


def bert_base(
    batch: Dim = 1, seed: int = 0, sequence: Dim = 128, kind: Encoder = BERT_BASE
) -> onnx.ModelProto:
    """Outputs: last_hidden_state (batch, sequence, width), pooler_output (batch, width)."""
    return bert("bert_base", kind, batch, seed, sequence, has_pooler=True)


def minilm_l6(
    batch: Dim = 1, seed: int = 0, sequence: Dim = 128, kind: Encoder = MINILM_L6
) -> onnx.ModelProto:
    """Output: last_hidden_state (batch, sequence, width)."""
    return bert("minilm_l6", kind, batch, seed, sequence, has_pooler=False)


def vit_small(
    batch: Dim = 1,
    seed: int = 0,
    size: int = 224,
    patch: int = 16,
    kind: Encoder = VIT_SMALL,
    classes: int = 1000,
) -> onnx.ModelProto:
    """Vision transformer with the norms before the blocks. Output: logits (batch, classes)."""
    width, patches = kind.width, (size // patch) ** 2
    net = TransformerBuilder("vit_small", seed, batch, patches + 1, kind)
    image = net.input("image", [batch, 3, size, size])
    kernel = net.constant(net.normal((width, 3, patch, patch), 1 / patch / math.sqrt(3)))
    offsets = net.constant(net.normal((width,), 0.05))
    shape = {"kernel_shape": [patch] * 2, "strides": [patch] * 2}
    maps = net.node("Conv", image, kernel, offsets, **shape)
    tokens = net.node("Reshape", maps, net.integers(0, width, patches))
    tokens = net.node("Transpose", tokens, perm=[0, 2, 1])
    start = net.constant(net.normal((1, 1, width)))
    start = net.node("Expand", start, net.shape(tokens, "batch", 1, width))
    tokens = net.node("Concat", start, tokens, axis=1)
    places = net.constant(net.normal((1, patches + 1, width), 0.5))
    x = net.node("Add", tokens, places)
    for _ in range(kind.layers):
        x = net.node("Add", x, net.attention(net.norm(x), None))
        x = net.node("Add", x, net.feed_forward(net.norm(x)))
    first = net.node("Gather", net.norm(x), net.constant(0, np.int64), axis=1)
    bias = net.constant(net.normal((classes,), 0.05))
    net.output(
        net.node("Gemm", first, net.weights(width, classes), bias), "logits", [batch, classes]
    )
    return net.model()


def _causal_attention(net: TransformerBuilder, x: str, allowed: str) -> str:
    """Attend to what came before; queries, keys and values come from one Gemm."""
    width = net.kind.width
    both = _flat_gemm(net, x, width, 3 * width)
    parts = net.nodes("Split", [both, net.integers(width, width, width)], 3, axis=2)
    query, key, value = parts
    scores = net.node("MatMul", net.heads(query), net.heads(key, (0, 2, 3, 1)))
    scores = net.node("Div", scores, net.constant(math.sqrt(width // net.kind.heads)))
    scores = net.node("Where", allowed, scores, net.constant(MASKED))
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), net.heads(value))
    return _flat_gemm(net, net.joined(mixed, x), width, width)


def _flat_gemm(net: TransformerBuilder, x: str, inputs: int, outputs: int) -> str:
    flat = net.node("Reshape", x, net.integers(-1, inputs))
    bias = net.constant(net.normal((outputs,), 0.05))
    product = net.node("Gemm", flat, net.weights(inputs, outputs), bias)
    return net.node("Reshape", product, net.shape(x, "batch", "sequence", outputs))


def gpt2_like(
    batch: Dim = 1, seed: int = 0, sequence: Dim = 128, kind: Encoder = GPT2_LIKE
) -> onnx.ModelProto:
    """Decoder without a cache of keys and values, for up to 1024 tokens.

    Input: input_ids, int64. Output: logits (batch, sequence, vocabulary).
    """
    net = TransformerBuilder("gpt2_like", seed, batch, sequence, kind)
    ids = net.input("input_ids", [batch, sequence], INT64)
    places = net.embedding(net.positions(ids, 1024), 1024)
    x = net.node("Add", net.embedding(ids, kind.vocabulary), places)
    every = net.constant(np.tri(1024)[None, None], np.bool_)
    end = net.shape(ids, "sequence")
    allowed = net.node("Slice", every, net.integers(0), end, net.integers(2))
    allowed = net.node("Slice", allowed, net.integers(0), end, net.integers(3))
    for _ in range(kind.layers):
        x = net.node("Add", _causal_attention(net, net.norm(x), allowed), x)
        hidden = net.tanh_gelu(_flat_gemm(net, net.norm(x), kind.width, kind.hidden))
        x = net.node("Add", _flat_gemm(net, hidden, kind.hidden, kind.width), x)
    logits = net.node("MatMul", net.norm(x), net.weights(kind.width, kind.vocabulary))
    net.output(logits, "logits", [batch, sequence, kind.vocabulary])
    return net.model()


def lstm_tagger(
    batch: Dim = 1,
    seed: int = 0,
    sequence: Dim = 64,
    vocabulary: int = 10_000,
    width: int = 128,
    hidden: int = 256,
    tags: int = 32,
) -> onnx.ModelProto:
    """Tags each token by a bidirectional LSTM.

    Input: input_ids, int64. Output: scores (batch, sequence, tags).
    """
    net = Builder("lstm_tagger", seed)
    ids = net.input("input_ids", [batch, sequence], INT64)
    words = net.node("Gather", net.constant(net.normal((vocabulary, width))), ids)
    by_time = net.node("Transpose", words, perm=[1, 0, 2])
    inputs = net.constant(net.normal((2, 4 * hidden, width), math.sqrt(1 / width)))
    states = net.constant(net.normal((2, 4 * hidden, hidden), math.sqrt(1 / hidden)))
    offsets = net.constant(net.normal((2, 8 * hidden), 0.05))
    kind = {"hidden_size": hidden, "direction": "bidirectional"}
    both = net.node("LSTM", by_time, inputs, states, offsets, **kind)
    turned = net.node("Transpose", both, perm=[2, 0, 1, 3])
    joined = net.node("Reshape", turned, net.integers(0, 0, 2 * hidden))
    weights = net.constant(net.normal((2 * hidden, tags), math.sqrt(1 / hidden)))
    scores = net.node("Add", net.node("MatMul", joined, weights), net.constant(net.normal((tags,))))
    net.output(scores, "scores", [batch, sequence, tags])
    return net.model()
