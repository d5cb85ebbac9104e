"""Operators on stored numbers that onnxruntime's quantiser writes: dequantise, compute, store."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import DType, Value
from .composition import Composition, CompositionError
from .registry import decomposition
from .stored_images import channels_last

__all__ = ["dequantized", "stored"]


def dequantized(made: Composition, first: int, axis: int | None = None) -> Value:
    """Dequantise the input ``first`` by the scale and the zero point that follow it."""
    stored, scale, zero = made.given(first), _step(made, first + 1), made.optional(first + 2)
    return made.add("DequantizeLinear", stored, scale, zero, axis=axis)


def stored(made: Composition, real: Value, first: int, like: DType) -> Value:
    """Store by the scale ``first`` and the zero point behind it, else in the type ``like``."""
    scale, zero = _step(made, first), made.optional(first + 1)
    output_dtype = like.value if zero is None else None
    return made.add("QuantizeLinear", real, scale, zero, output_dtype=output_dtype)


def _step(made: Composition, index: int) -> Value:
    """Return a scale; onnxruntime knows none but float32, whose rounding devices agree on."""
    scale = made.given(index)
    if made.dtype(scale) is not DType.FLOAT32:
        raise CompositionError(
            f"its scale {scale.name!r} is {made.dtype(scale).label}, and has to be float32"
        )
    return scale


@decomposition("QLinearAdd", "QLinearMul")
def of_two(made: Composition) -> list[Value]:
    """a, its scale, its zero point; b and its; scale and zero point of the result."""
    op_type = made.node.op_type.removeprefix("QLinear")
    real = made.add(op_type, dequantized(made, 0), dequantized(made, 3))
    return [stored(made, real, 6, made.dtype(made.given(0)))]


def of_one(made: Composition, compute: Callable[[Value], Value]) -> list[Value]:
    """x, its scale, its zero point; scale and zero point of the result."""
    return [stored(made, compute(dequantized(made, 0)), 3, made.dtype(made.given(0)))]


def mean_of(made: Composition, compute: Callable[[Value], Value]) -> list[Value]:
    """As ``of_one`` for means: scaled when they are made, so that the sums are those of integers.

    These are exact in any order, and all devices store the same number where a mean lies between
    two of them, as one in twenty does where scales are round.
    """
    step = _step(made, 1)
    dtype = made.dtype(step).value
    x, zero = made.add("Cast", made.given(0), to=dtype), made.optional(2)
    if zero is not None:
        x = made.add("Sub", x, made.add("Cast", zero, to=dtype))
    real = made.add("Mul", compute(x), step)
    return [stored(made, real, 3, made.dtype(made.given(0)))]


@decomposition("QLinearSigmoid")
def sigmoid(made: Composition) -> list[Value]:
    """Sigmoid of what was stored."""
    return of_one(made, lambda x: made.add("Sigmoid", x))


@decomposition("QLinearLeakyRelu")
def leaky_relu(made: Composition) -> list[Value]:
    """LeakyRelu of what was stored."""
    alpha = float(made.node.attributes.get("alpha", 0.01))
    return of_one(made, lambda x: made.add("LeakyRelu", x, alpha=alpha))


@decomposition("QLinearSoftmax")
def softmax(made: Composition) -> list[Value]:
    """Softmax of an operator set: before 13 all axes from the given one on are one."""
    axis = int(made.node.attributes.get("axis", -1))

    def compute(x: Value) -> Value:
        if int(made.node.attributes.get("opset", 13)) >= 13 or axis in (-1, made.rank(x) - 1):
            return made.add("Softmax", x, axis=axis)
        rows = made.add("Softmax", made.add("Flatten", x, axis=axis), axis=-1)
        return made.add("Reshape", rows, made.add("Shape", x))

    return of_one(made, compute)


@decomposition("QLinearGlobalAveragePool")
def global_average_pool(made: Composition) -> list[Value]:
    """The mean of each channel, which is the last axis for ``channels_last``."""

    def compute(x: Value) -> Value:
        if not made.node.attributes.get("channels_last", 0):
            return made.add("GlobalAveragePool", x)
        axes = made.integers(*range(1, made.rank(x) - 1))
        return made.add("ReduceMean", x, axes, keepdims=1)

    return mean_of(made, compute)


@decomposition("QLinearAveragePool")
def average_pool(made: Composition) -> list[Value]:
    """AveragePool, with its attributes."""
    given = made.node.attributes
    kept = {key: item for key, item in given.items() if key != "channels_last"}

    def compute(x: Value) -> Value:
        if not given.get("channels_last", 0):
            return made.add("AveragePool", x, **kept)
        return channels_last(made, x, lambda first: made.add("AveragePool", first, **kept))

    return mean_of(made, compute)


@decomposition("QLinearReduceMean")
def reduce_mean(made: Composition) -> list[Value]:
    """The mean over the axes of an attribute, or over all."""
    given = made.node.attributes
    axes = given.get("axes")
    places = None if axes is None else made.integers(*axes)
    keepdims = int(given.get("keepdims", 1))
    return mean_of(made, lambda x: made.add("ReduceMean", x, places, keepdims=keepdims))


@decomposition("QLinearConcat")
def concat(made: Composition) -> list[Value]:
    """Scale and zero point of the result; then each part with its own."""
    if len(made.inputs) < 5 or len(made.inputs) % 3 != 2:
        raise CompositionError(
            f"it has {len(made.inputs)} inputs, and 2 and 3 for each part are it"
        )
    parts = [dequantized(made, first) for first in range(2, len(made.inputs), 3)]
    joined = made.add("Concat", *parts, axis=int(made.node.attributes.get("axis", 0)))
    return [stored(made, joined, 0, made.dtype(made.given(2)))]


@decomposition("QLinearWhere")
def where(made: Composition) -> list[Value]:
    """A condition; x, its scale, its zero point; y and its; scale and zero point of the result."""
    chosen = made.add("Where", made.given(0), dequantized(made, 1), dequantized(made, 4))
    return [stored(made, chosen, 7, made.dtype(made.given(1)))]


@decomposition("QGemm")
def gemm(made: Composition) -> list[Value]:
    """Gemm of a and b; c is int32 in their scales; float32 without a scale of the result."""
    given = made.node.attributes
    alpha, is_turned = float(given.get("alpha", 1.0)), int(given.get("transB", 0))
    left, right = dequantized(made, 0), dequantized(made, 3, 0 if is_turned else 1)
    bias = made.optional(6)
    if bias is not None:
        scale = made.add("Mul", _scale(made, 1), _scale(made, 4))
        if alpha != 1.0:
            scale = made.add("Mul", scale, made.number(alpha, scale))
        bias = made.add("DequantizeLinear", bias, scale, axis=made.rank(bias) - 1)
    flags = {"transA": int(given.get("transA", 0)), "transB": is_turned}
    product = made.add("Gemm", left, right, bias, alpha=alpha, **flags)
    if made.optional(7) is None:
        return [product]
    return [stored(made, product, 7, made.dtype(made.given(0)))]


def _scale(made: Composition, index: int) -> Value:
    """Return a scale as one number, where it is one, so that products have the other's shape."""
    scale = made.given(index)
    return made.add("Reshape", scale, made.integers()) if made.shape(scale) == (1,) else scale


@decomposition("MatMulIntegerToFloat")
def integer_matmul(made: Composition) -> list[Value]:
    """a, b, their scales, their zero points, and what is added."""
    zeros = made.optional(4), made.optional(5)
    operands = made.given(0), made.given(1)
    return [_scaled(made, operands, zeros, (made.given(2), made.given(3)), made.optional(6))]


@decomposition("DynamicQuantizeMatMul")
def dynamic_matmul(made: Composition) -> list[Value]:
    """Data in float32; b, its scale, its zero point, and what is added."""
    a, scale, zero = made.add_many("DynamicQuantizeLinear", 3, made.given(0))
    scales = scale, made.given(2)
    zeros = zero, made.optional(3)
    return [_scaled(made, (a, made.given(1)), zeros, scales, made.optional(4))]


def _scaled(
    made: Composition,
    operands: tuple[Value, Value],
    zeros: tuple[Value | None, Value | None],
    scales: tuple[Value, Value],
    added: Value | None,
) -> Value:
    """Multiply matrices of stored numbers, and scale the sums."""
    sums = made.add("MatMulInteger", *operands, *zeros)
    factor = made.add("Mul", *scales)
    real = made.add("Cast", sums, to=made.dtype(factor).value)
    product = made.add("Mul", real, factor)
    return product if added is None else made.add("Add", product, added)
