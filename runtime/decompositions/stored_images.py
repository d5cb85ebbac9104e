"""Stored numbers with channels last, and the quantisation that onnxruntime has for more types."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Attribute, Value
from .composition import Composition
from .registry import decomposition

__all__ = ["channels_last"]


@decomposition("QuantizeLinear", "DequantizeLinear")
def like_onnx(made: Composition) -> list[Value]:
    """Numbers, a scale and perhaps a zero point: ONNX's operator of the name."""
    given = [made.given(0), made.given(1), made.optional(2)]
    axis = made.node.attributes.get("axis")
    return [made.add(made.node.op_type, *given, axis=axis)]


@decomposition("QLinearConv")
def convolution(made: Composition) -> list[Value]:
    """x, its scale and zero point; weights and theirs; those of the result; a bias."""
    rest = [made.optional(index) for index in range(1, 9)]
    kept = _without_layout(made)
    if not made.node.attributes.get("channels_last", 0):
        return [made.add("QLinearConv", made.given(0), *rest, **kept)]
    return [channels_last(made, made.given(0), lambda x: made.add("QLinearConv", x, *rest, **kept))]


@decomposition("NhwcMaxPool")
def max_pool(made: Composition) -> list[Value]:
    """X."""
    kept = _without_layout(made)
    return [channels_last(made, made.given(0), lambda x: made.add("MaxPool", x, **kept))]


def channels_last(made: Composition, x: Value, compute: Callable[[Value], Value]) -> Value:
    """Bring channels forward, and those of what is computed back."""
    rank = made.rank(x)
    found = compute(made.add("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)]))
    return made.add("Transpose", found, perm=[0, *range(2, rank), 1])


def _without_layout(made: Composition) -> dict[str, Attribute]:
    given = made.node.attributes
    return {name: item for name, item in given.items() if name != "channels_last"}
