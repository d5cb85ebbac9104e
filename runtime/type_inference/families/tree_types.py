"""Types of ensembles of trees: a row of numbers for each row of features."""

from __future__ import annotations

from ...graph import Dim, DType, Node, TensorType
from ..content.shape_content import ShapeContent
from ..operands import Operand, integer, operand, require_rank
from ..rules import type_rule

_ML = "ai.onnx.ml"


def _rows(x: Operand) -> Dim:
    """Return how many rows there are: a vector is one."""
    require_rank("the rows of features", x, 1, 2)
    return x.shape[0] if len(x.shape) == 2 else 1


@type_rule("TreeEnsemble", "TreeEnsembleRegressor", domain=_ML)
def aggregate_trees(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N, targets); of the old form always float32."""
    x, count = operand(node, 0), integer(node, "n_targets", 1)
    if x is None or count is None:
        return None
    dtype = x.dtype if node.op_type == "TreeEnsemble" else DType.FLOAT32
    return [TensorType(dtype, (_rows(x), count))]


@type_rule("TreeEnsembleClassifier", domain=_ML)
def classify_by_trees(node: Node, contents: ShapeContent) -> list[TensorType] | None:
    """(N,) labels and (N, classes) scores; PROBIT makes one of two where leaves speak of one."""
    x = operand(node, 0)
    if x is None:
        return None
    texts = node.attributes.get("classlabels_strings") or []
    count = max(1, len(texts or node.attributes.get("classlabels_int64s") or []))
    is_one = len(set(node.attributes.get("class_ids") or [])) == 1
    if count == 2 and is_one and node.text("post_transform", "NONE") == "PROBIT":
        return None
    label = DType.STRING if texts and count > 1 else DType.INT64
    rows = _rows(x)
    return [TensorType(label, (rows,)), TensorType(DType.FLOAT32, (rows, count))]
