"""Types of what ai.onnx.ml does with features, labels and support vectors."""

from __future__ import annotations

import math

import numpy as np

from ...graph import DType, Node, TensorType, is_static
from ..content.shape_content import ShapeContent
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
