"""Types of what ai.onnx.ml does with features, labels and support vectors."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Dim, DType, Node, TensorType, is_static
from ..content.shape_content import ShapeContent
from ..contradiction import ContradictionError
from ..operands import operand, require_rank
from ..rules import type_rule

_ML = "ai.onnx.ml"


def _length(node: Node, *names: str) -> int:
    """Count the items of the first attribute that has some."""
    lists = (node.attributes.get(name) for name in names)
    return next((len(found) for found in lists if isinstance(found, list) and found), 0)


@type_rule("Binarizer", "Imputer", domain=_ML)
def like_features(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Same type and shape."""
    x = operand(node, 0)
    return None if x is None else [TensorType(x.dtype, x.shape)]


@type_rule("Normalizer", "Scaler", domain=_ML)
def scaled_features(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Same shape, in float32."""
    x = operand(node, 0)
    return None if x is None else [TensorType(DType.FLOAT32, x.shape)]


@type_rule("ArrayFeatureExtractor", domain=_ML)
def picked_features(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """Last axis as long as there are indices; a vector becomes a row."""
    x, indices = operand(node, 0), operand(node, 1)
    if x is None or indices is None:
        return None
    require_rank("x", x, 1, -1)
    if not is_static(indices.shape):
        return None
    lead = x.shape[:-1] if len(x.shape) > 1 else (1,)
    return [TensorType(x.dtype, (*lead, math.prod(indices.shape)))]


@type_rule("FeatureVectorizer", domain=_ML)
def joined_features(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, sum of the dimensions) in float32."""
    x, wanted = operand(node, 0), node.attributes.get("inputdimensions")
    if x is None or len(x.shape) != 2 or not isinstance(wanted, list):
        return None
    if len(wanted) != len(node.inputs) or not all(isinstance(item, int) for item in wanted):
        return None
    return [TensorType(DType.FLOAT32, (x.shape[0], sum(wanted)))]


@type_rule("TfIdfVectorizer")
def gram_counts(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """A number for each column that the attributes name: (C,) or (N, columns), in float32."""
    x, columns = operand(node, 0), node.attributes.get("ngram_indexes")
    if x is None or not isinstance(columns, list):
        return None
    if not all(isinstance(item, int) and item >= 0 for item in columns):
        return None
    require_rank("the items", x, 1, 2)
    width = max(columns, default=-1) + 1
    return [TensorType(DType.FLOAT32, (*x.shape[:-1], width))]


@type_rule("OneHotEncoder", domain=_ML)
def categories(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """As many ones and zeros for each element as there are categories."""
    x, count = operand(node, 0), _length(node, "cats_int64s", "cats_strings")
    return None if x is None else [TensorType(DType.FLOAT32, (*x.shape, count))]


@type_rule("LabelEncoder", domain=_ML)
def labels(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """The shape of the keys, in the type of the values; in version 1, places of texts or texts."""
    x, tensor = operand(node, 0), node.attributes.get("values_tensor")
    if x is None:
        return None
    if _length(node, "classes_strings"):
        return [TensorType(DType.INT64 if x.dtype is DType.STRING else DType.STRING, x.shape)]
    if isinstance(tensor, np.ndarray):
        return [TensorType(DType.of(tensor.dtype), x.shape)]
    lists = {"values_floats": DType.FLOAT32, "values_int64s": DType.INT64}
    dtype = next((lists[name] for name in lists if _length(node, name)), DType.STRING)
    return [TensorType(dtype, x.shape)]


@type_rule("LinearRegressor", domain=_ML)
def regress_linearly(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, targets) in float32."""
    targets, rows = int(node.attributes.get("targets", 1)), _linear_rows(node)
    if rows is None:
        return None
    _require_intercepts(node, targets)
    return [TensorType(DType.FLOAT32, (rows[0], targets))]


@type_rule("LinearClassifier", domain=_ML)
def classify_linearly(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N,) labels, and (N, rows of coefficients) scores; one row for two labels makes two."""
    rows, coefficients = _linear_rows(node), _length(node, "coefficients")
    if rows is None or not isinstance(rows[1], int) or rows[1] < 1 or coefficients % rows[1]:
        return None
    count, texts = coefficients // rows[1], _length(node, "classlabels_strings")
    _require_intercepts(node, count)
    labels = _length(node, "classlabels_ints")
    width = 2 if count == 1 and (labels or texts) == 2 else count
    kind = DType.STRING if texts and not labels else DType.INT64
    return [TensorType(kind, (rows[0],)), TensorType(DType.FLOAT32, (rows[0], width))]


def _linear_rows(node: Node) -> tuple[Dim, Dim] | None:
    """Return how many rows a linear model is given, and of how many features."""
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the rows of features", x, 1, 2)
    return (x.shape[0], x.shape[1]) if len(x.shape) == 2 else (1, x.shape[0])


def _require_intercepts(node: Node, count: int) -> None:
    found = _length(node, "intercepts")
    if found not in (0, count):
        raise ContradictionError(f"{found} intercepts are given for {count} rows of coefficients")


@type_rule("SVMRegressor", domain=_ML)
def regress_by_support_vectors(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, 1) in float32."""
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the rows of features", x, 1, 2)
    return [TensorType(DType.FLOAT32, (x.shape[0] if len(x.shape) == 2 else 1, 1))]


@type_rule("SVMClassifier", domain=_ML)
def classify_by_support_vectors(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N,) labels, and a score for each class, or for each pair of classes."""
    x = operand(node, 0)
    if x is None:
        return None
    require_rank("the rows of features", x, 1, 2)
    rows = x.shape[0] if len(x.shape) == 2 else 1
    texts = _length(node, "classlabels_strings")
    count = max(1, _length(node, "classlabels_ints") or texts)
    width = count
    if _length(node, "vectors_per_class") and not _length(node, "prob_a"):
        width = count * (count - 1) // 2
        if count == 2 and node.text("post_transform", "NONE") != "PROBIT":
            width = 2
    is_text = texts and not _length(node, "classlabels_ints")
    kind = DType.STRING if is_text else DType.INT64
    return [TensorType(kind, (rows,)), TensorType(DType.FLOAT32, (rows, width))]
