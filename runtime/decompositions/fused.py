"""Float operators that onnxruntime's optimizer writes for patterns of ONNX's: as those patterns."""

from __future__ import annotations

import numpy as np

from ..graph import DType, Value
from .composition import Composition, CompositionError
from .registry import decomposition

__all__ = ["layer_normalized"]

_ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")


@decomposition("Gelu")
def gelu(made: Composition) -> list[Value]:
    """X."""
    return [made.add("Gelu", made.given(0))]


@decomposition("BiasGelu")
def bias_gelu(made: Composition) -> list[Value]:
    """a, and a bias of its last axis."""
    return [made.add("Gelu", made.add("Add", made.given(0), made.given(1)))]


@decomposition("FastGelu")
def fast_gelu(made: Composition) -> list[Value]:
    """x, and perhaps a bias of its last axis; by the tangent."""
    x, bias = made.given(0), made.optional(1)
    if bias is not None:
        x = made.add("Add", x, bias)
    return [made.add("Gelu", x, approximate="tanh")]


@decomposition("QuickGelu")
def quick_gelu(made: Composition) -> list[Value]:
    """X times the sigmoid of alpha x."""
    x = made.given(0)
    alpha = float(made.node.attributes.get("alpha", 1.702))
    scaled = x if alpha == 1.0 else made.add("Mul", x, made.number(alpha, x))
    return [made.add("Mul", x, made.add("Sigmoid", scaled))]


@decomposition("SkipLayerNormalization")
def skip_layer_normalization(made: Composition) -> list[Value | None]:
    """input, skip, gamma, beta, bias; the fourth output is the sum before the normalisation.

    The second and third are the mean of each row, and 1 by its deviation.
    """
    total = _sum_with_skip(made, made.optional(4))
    scale, shift = made.given(2), made.optional(3)
    if not any(made.is_used(place) for place in (1, 2)):
        return [layer_normalized(made, total, scale, shift), None, None, total]
    epsilon = float(made.node.attributes.get("epsilon", 1e-12))
    found = made.add_many("LayerNormalization", 3, total, scale, shift, axis=-1, epsilon=epsilon)
    return [*found, total]


@decomposition("SkipSimplifiedLayerNormalization")
def skip_rms_normalization(made: Composition) -> list[Value | None]:
    """input, skip, gamma, bias; the fourth output is the sum before the normalisation.

    The second is zeros, as onnxruntime has it, the third 1 by the root of the mean square, both in
    float32.
    """
    total = _sum_with_skip(made, made.optional(3))
    epsilon = float(made.node.attributes.get("epsilon", 1e-12))
    normal = made.add("RMSNormalization", total, made.given(2), axis=-1, epsilon=epsilon)
    zeros, inverse = None, None
    if any(made.is_used(place) for place in (1, 2)):
        wide = made.add("Cast", total, to=DType.FLOAT32.value)
        mean = made.add("ReduceMean", made.add("Mul", wide, wide), made.integers(-1), keepdims=1)
        root = made.add("Sqrt", made.add("Add", mean, made.number(epsilon, mean)))
        inverse = made.add("Reciprocal", root)
        zeros = made.add("ConstantOfShape", made.add("Shape", mean))
    return [normal, zeros, inverse, total]


@decomposition("SimplifiedLayerNormalization", domain="")
def rms_normalization(made: Composition) -> list[Value]:
    """X and scale; from an axis on."""
    given = made.node.attributes
    axis, epsilon = int(given.get("axis", -1)), float(given.get("epsilon", 1e-5))
    x, scale = made.given(0), made.given(1)
    return [made.add("RMSNormalization", x, scale, axis=axis, epsilon=epsilon)]


def _sum_with_skip(made: Composition, bias: Value | None) -> Value:
    """Add input, skip and bias; a skip of fewer rows is repeated for each of the batch."""
    x = made.given(0)
    if bias is not None:
        x = made.add("Add", x, bias)
    return made.add("Add", x, made.given(1))


def layer_normalized(made: Composition, x: Value, gamma: Value, beta: Value | None) -> Value:
    """Normalise the last axis, with the node's epsilon."""
    epsilon = float(made.node.attributes.get("epsilon", 1e-12))
    return made.add("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon)


@decomposition("EmbedLayerNormalization")
def embed_layer_normalization(made: Composition) -> list[Value | None]:
    """Words, segments, three tables, gamma, beta, mask and positions: their sum, normalised.

    The second output counts the words of each row that the mask does not hide.
    """
    words, segments = made.given(0), made.optional(1)
    total = made.add("Gather", made.given(2), words)
    total = made.add("Add", total, _positions(made, words))
    if segments is not None:
        total = made.add("Add", total, made.add("Gather", made.given(4), segments))
    normal = layer_normalized(made, total, made.given(5), made.given(6))
    mask, counted = made.optional(7), None
    if len(made.node.outputs) > 1:
        if mask is not None:
            counted = made.add("ReduceSum", mask, made.integers(1), keepdims=0)
        else:
            batch = made.add("Shape", words, start=0, end=1)
            zero = np.zeros(1, made.dtype(words).numpy)
            counted = made.add("ConstantOfShape", batch, value=zero)
    return [normal, counted, total]


def _positions(made: Composition, words: Value) -> Value:
    """Return the embeddings of the positions: those given, or of counting from zero."""
    table, given = made.given(3), made.optional(8)
    if given is not None:
        return made.add("Gather", table, given)
    ends = made.add("Shape", words, start=1, end=2)
    return made.add("Slice", table, made.integers(0), ends, made.integers(0))


@decomposition("FusedMatMul")
def fused_matmul(made: Composition) -> list[Value]:
    """A and b, perhaps transposed, and the matmul scaled."""
    a = _matrices(made, made.given(0), "transA", "transBatchA")
    b = _matrices(made, made.given(1), "transB", "transBatchB")
    product = made.add("MatMul", a, b)
    alpha = float(made.node.attributes.get("alpha", 1.0))
    return [product if alpha == 1.0 else made.add("Mul", product, made.number(alpha, product))]


def _matrices(made: Composition, x: Value, turns: str, turns_batch: str) -> Value:
    """Turn the last two axes, and bring the first one behind those of the batch.

    As onnxruntime has it: with ``transBatch`` (B, M, batch.., K) stands for (batch.., B, M, K), so
    the axis before the last, and the batch, change places.
    """
    rank = made.rank(x)
    order = list(range(rank))
    if rank > 1 and made.node.attributes.get(turns_batch, 0):
        order = [*order[1:-1], order[0], order[-1]]
    if rank > 1 and made.node.attributes.get(turns, 0):
        order = [*order[:-2], order[-1], order[-2]]
    return x if order == sorted(order) else made.add("Transpose", x, perm=order)


@decomposition("FusedGemm")
def fused_gemm(made: Composition) -> list[Value]:
    """Gemm, and an activation behind it."""
    own = ("alpha", "beta", "transA", "transB")
    kept = {name: made.node.attributes[name] for name in own if name in made.node.attributes}
    product = made.add("Gemm", made.given(0), made.given(1), made.optional(2), **kept)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    numbers = [made.node.attributes.get(name) for name in names]
    return [_activated(made, product, [float(item) for item in numbers if item is not None])]


@decomposition("FusedConv")
def fused_conv(made: Composition) -> list[Value]:
    """Conv of x, w and perhaps a bias; z is added; then an activation."""
    given = made.node.attributes
    kept = {name: item for name, item in given.items() if not name.startswith("activation")}
    made_conv = made.add("Conv", made.given(0), made.given(1), made.optional(2), **kept)
    added = made.optional(3)
    if added is not None:
        made_conv = made.add("Add", made_conv, added)
    return [
        _activated(made, made_conv, [float(item) for item in given.get("activation_params", [])])
    ]


def _activated(made: Composition, x: Value, numbers: list[float]) -> Value:
    """Apply the activation that the node names, with its numbers in onnxruntime's order."""
    name = made.node.text("activation", "")
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise CompositionError(f"its activation is {name!r}")
    if name in ("Relu", "Tanh", "Sigmoid"):
        return made.add(name, x)
    if name == "LeakyRelu":
        return made.add(name, x, alpha=numbers[0] if numbers else 0.01)
    if name == "HardSigmoid":
        alpha, beta = numbers if len(numbers) == 2 else (0.2, 0.5)
        return made.add(name, x, alpha=alpha, beta=beta)
    if len(numbers) != 2:
        raise CompositionError("its Clip has no two bounds")
    return made.add("Clip", x, *(made.number(bound, x) for bound in numbers))


@decomposition(
    *("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
    *("ReorderInput", "ReorderOutput", "Upsample"),
    domain="com.microsoft.nchwc",
)
def blocked_channels(made: Composition) -> list[Value]:
    """Return what these files are: how wide their blocks are is not written in them."""
    raise CompositionError(
        "onnxruntime lays a model out for one processor at its level 'all'; save it at 'extended'"
    )
