"""Linear models and scalers of ai.onnx.ml, as matmuls and elementwise operators of ONNX's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import DType, Value
from .composition import Composition, CompositionError
from .registry import decomposition

_ML = "ai.onnx.ml"
_NORMS = {"L1": "ReduceL1", "L2": "ReduceL2", "MAX": "ReduceMax"}


@decomposition("Scaler", domain=_ML)
def scaler(made: Composition) -> list[Value]:
    """(x - offset) scale, in float32."""
    x = _as_float32(made, made.given(0))
    offset, scale = (_numbers(made, name) for name in ("offset", "scale"))
    moved = made.add("Sub", x, made.constant(offset, "offset"))
    return [made.add("Mul", moved, made.constant(scale, "scale"))]


@decomposition("Normalizer", domain=_ML)
def normalizer(made: Composition) -> list[Value]:
    """Divide each row by its norm; a row whose norm is 0 stays.

    MAX divides by the greatest element, which may be negative, as onnxruntime does.
    """
    norm, x = made.node.text("norm", "MAX"), _as_float32(made, made.given(0))
    if norm not in _NORMS or made.rank(x) not in (1, 2):
        raise CompositionError(f"its norm is {norm!r}")
    measured = x
    if norm == "MAX":  # where NaN is no greatest element, and the lowest finite number is the least
        lowest = made.number(float(np.finfo(np.float32).min), x)
        measured = made.add("Where", made.add("IsNaN", x), lowest, made.add("Max", x, lowest))
    total = made.add(_NORMS[norm], measured, made.integers(-1), keepdims=1)
    is_zero = made.add("Equal", total, made.number(0.0, total))
    return [made.add("Div", x, made.add("Where", is_zero, made.number(1.0, total), total))]


@decomposition("LinearRegressor", domain=_ML)
def linear_regressor(made: Composition) -> list[Value]:
    """X times coefficients, and the intercepts; of one target PROBIT alone transforms."""
    targets = int(made.node.attributes.get("targets", 1))
    scores = _products(made, targets)
    if targets == 1 and made.node.text("post_transform", "NONE") != "PROBIT":
        return [scores]
    return [_transformed(made, scores)]


@decomposition("LinearClassifier", domain=_ML)
def linear_classifier(made: Composition) -> list[Value]:
    """Labels and scores: one row of coefficients for two labels speaks of the second one.

    As onnxruntime has it, the first has the rest to one, and LOGISTIC alone transforms.
    """
    given = made.node.attributes
    texts, numbers = given.get("classlabels_strings"), given.get("classlabels_ints")
    labels: np.ndarray[Any, Any] = np.array(list(numbers or []), np.int64)
    if texts:
        labels = np.array(list(texts), object)
    width = made.shape(made.given(0))[-1]
    coefficients = _numbers(made, "coefficients")
    if not isinstance(width, int) or not width or len(coefficients) % width:
        raise CompositionError("how many features it has is not known")
    count = len(coefficients) // width
    scores = _products(made, count)
    if count == 1 and len(labels) == 2:
        is_second = made.add("Greater", scores, made.number(0.0, scores))
        places = made.add(
            "Cast", made.add("Squeeze", is_second, made.integers(1)), to=DType.INT64.value
        )
        label = made.add("Gather", made.constant(labels, "labels"), places)
        return [label, _second_score(made, scores)]
    elif count == len(labels) > 1:
        places = made.add("ArgMax", scores, axis=1, keepdims=0)
        label = made.add("Gather", made.constant(labels, "labels"), places)
    else:
        raise CompositionError(f"it has {len(labels)} labels for {count} rows of coefficients")
    return [label, _transformed(made, scores)]


def _second_score(made: Composition, scores: Value) -> Value:
    """Return (N, 2) for (N, 1) of the second of two classes."""
    if made.node.text("post_transform", "NONE") == "LOGISTIC":
        pair = made.add("Concat", made.add("Neg", scores), scores, axis=1)
        return made.add("Sigmoid", pair)
    if made.node.text("post_transform", "NONE") not in ("NONE", "SOFTMAX"):
        raise CompositionError("one class is transformed by what ONNX has no operator for")
    first = made.add("Sub", made.number(1.0, scores), scores)
    return made.add("Concat", first, scores, axis=1)


def _products(made: Composition, count: int) -> Value:
    """Multiply rows of features by ``count`` rows of coefficients, and add the intercepts.

    Raises ValueError for another number of intercepts, which would broadcast.
    """
    x = _as_float32(made, made.given(0))
    coefficients = _numbers(made, "coefficients")
    if made.rank(x) != 2 or count < 1 or len(coefficients) % count:
        raise CompositionError(f"{len(coefficients)} coefficients are no {count} rows")
    columns = np.ascontiguousarray(coefficients.reshape(count, -1).T)
    product = made.add("MatMul", x, made.constant(columns, "coefficients"))
    if not made.node.attributes.get("intercepts"):
        return product
    intercepts = _numbers(made, "intercepts")
    if len(intercepts) != count:
        raise ValueError(f"{len(intercepts)} intercepts are given for {count} rows of coefficients")
    return made.add("Add", product, made.constant(intercepts, "intercepts"))


def _transformed(made: Composition, scores: Value) -> Value:
    name = made.node.text("post_transform", "NONE")
    if name == "NONE":
        return scores
    if name == "LOGISTIC":
        return made.add("Sigmoid", scores)
    if name == "SOFTMAX":
        return made.add("Softmax", scores, axis=-1)
    raise CompositionError(f"its scores are transformed by {name}")


def _numbers(made: Composition, name: str) -> np.ndarray[Any, Any]:
    found = made.node.attributes.get(name)
    if not found:
        raise CompositionError(f"its {name} are not given")
    return np.array(list(found), np.float32)


def _as_float32(made: Composition, x: Value) -> Value:
    dtype = made.dtype(x)
    if dtype is DType.FLOAT64:
        raise CompositionError("it computes in float64")
    return x if dtype is DType.FLOAT32 else made.add("Cast", x, to=DType.FLOAT32.value)
