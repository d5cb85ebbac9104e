"""Operators of ONNX that few devices have kernels for, as those that they are made of.

Not registered: devices that have the operators as a whole, such as REFERENCE, keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..graph import DType, Value
from .composition import Composition, CompositionError

__all__ = ["STANDARD"]

_TINY = 1e-9


def mean_variance_normalization(made: Composition) -> list[Value]:
    """(x - mean) / (standard deviation + 1e-9), over axes."""
    x, axes = made.given(0), made.node.attributes.get("axes") or [0, 2, 3]
    if not isinstance(axes, list):
        raise CompositionError(f"its axes are {axes!r}")
    over = made.integers(*(int(axis) for axis in axes))
    centred = made.add("Sub", x, made.add("ReduceMean", x, over, keepdims=1))
    variance = made.add("ReduceMean", made.add("Mul", centred, centred), over, keepdims=1)
    deviation = made.add("Add", made.add("Sqrt", variance), made.number(_TINY, x))
    return [made.add("Div", centred, deviation)]


def likelihood_loss(made: Composition) -> list[Value]:
    """Logarithms by classes along the second axis, labels, and perhaps a weight for each class."""
    return [_loss(made, made.given(0))]


def softmax_loss(made: Composition) -> list[Value]:
    """The loss of scores, and the logarithms of their softmax along the second axis."""
    logs = made.add("LogSoftmax", made.given(0), axis=1)
    return [_loss(made, logs), logs]


def _loss(made: Composition, logs: Value) -> Value:
    """Pick the logarithm of each label's class, negate, weigh and reduce.

    A label below zero becomes one that is too large, which is no place of a class.
    """
    labels, weights = made.given(1), made.optional(2)
    reduction = made.node.text("reduction", "mean")
    ignored = made.node.attributes.get("ignore_index")
    zero, beyond = made.number(0, labels), made.number(_beyond(made, labels), labels)
    kept = made.add("Where", made.add("Less", labels, zero), beyond, labels)
    is_ignored = None
    if ignored is not None:
        is_ignored = made.add("Equal", labels, made.number(int(ignored), labels))
        kept = made.add("Where", is_ignored, zero, kept)
    places = made.add("Unsqueeze", kept, made.integers(1))
    picked = made.add("GatherElements", logs, places, axis=1)
    loss = made.add("Neg", made.add("Squeeze", picked, made.integers(1)))
    nothing, shares = made.number(0, logs), None
    if weights is not None:
        shares = made.add("Gather", weights, kept)
    elif is_ignored is not None:
        shares = made.add("Cast", made.add("Not", is_ignored), to=made.dtype(logs).value)
    if is_ignored is not None:
        loss = made.add("Where", is_ignored, nothing, loss)
        if weights is not None:
            shares = made.add("Where", is_ignored, nothing, shares)
    if weights is not None:
        loss = made.add("Mul", loss, shares)
    if reduction == "none":
        return loss
    if reduction == "mean" and shares is None:
        return made.add("ReduceMean", loss, keepdims=0)
    total = made.add("ReduceSum", loss, keepdims=0)
    if reduction == "sum":
        return total
    return made.add("Div", total, made.add("ReduceSum", shares, keepdims=0))


def _beyond(made: Composition, labels: Value) -> int:
    """Return a number that is no class."""
    return (1 << 31) - 1 if made.dtype(labels) is DType.INT32 else (1 << 62)


STANDARD: Mapping[str, Callable[[Composition], Sequence[Value | None]]] = {
    "MeanVarianceNormalization": mean_variance_normalization,
    "NegativeLogLikelihoodLoss": likelihood_loss,
    "SoftmaxCrossEntropyLoss": softmax_loss,
}
"""By operator: adds the nodes and returns the values that stand for the outputs."""
