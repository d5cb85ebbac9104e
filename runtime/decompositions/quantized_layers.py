"""Layers on stored numbers: attention and LSTM, as onnxruntime's quantiser writes them."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Value
from .attention import attention
from .composition import Composition
from .registry import decomposition

__all__ = ["lstm", "quantized_attention"]


@decomposition("DynamicQuantizeLSTM")
def lstm(made: Composition) -> list[Value]:
    """An LSTM's inputs, of which the weights are stored and turned; then their scales and points.

    Data and states stay real numbers, which are closer to those of the model in float32.
    """
    weights = [_turned(made, 1, 8), _turned(made, 2, 10)]
    rest = [made.optional(index) for index in range(3, 8)]
    kept = dict(made.node.attributes)
    return list(made.add_many("LSTM", 3, made.given(0), *weights, *rest, **kept))


def _turned(made: Composition, stored: int, first: int) -> Value:
    """Dequantise weights of (directions, inner, gates), and give (directions, gates, inner)."""
    scale = made.given(first)
    kind = made.dtype(scale).value
    real = made.add("Cast", made.given(stored), to=kind)
    zero = made.optional(first + 1)
    if zero is not None:
        real = made.add("Sub", real, _spread(made, made.add("Cast", zero, to=kind)))
    scaled = made.add("Mul", real, _spread(made, scale))
    return made.add("Transpose", scaled, perm=[0, 2, 1])


def _spread(made: Composition, value: Value) -> Value:
    """View a number for each direction, or a row of them for each, beside weights."""
    axes = (1, 2) if made.rank(value) == 1 else (1,)
    return made.add("Unsqueeze", value, made.integers(*axes))


@decomposition("QAttention")
def quantized_attention(made: Composition) -> Sequence[Value | None]:
    """Data, weights, a bias, both scales, a mask, both points, past: Attention of real numbers."""
    data = made.add("DequantizeLinear", made.given(0), made.given(3), made.optional(6))
    weights = made.add("DequantizeLinear", made.given(1), made.given(4), made.optional(7), axis=1)
    real = (data, weights, made.given(2), made.optional(5), made.optional(8))
    return attention(made.with_inputs(real))
