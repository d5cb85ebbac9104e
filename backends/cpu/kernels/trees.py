"""Ensembles of trees as one native kernel over tables, which are made once for all plans.

The tables lie in one array of bytes, so that plans share it and blobs hold it: a head of counts,
then each table from a multiple of 64 bytes on. native_trees.c says what they are, and bounds what
it reads from them. Comparisons are in float32; ensembles that want float64, rows of other types and
labels that are strings are for numpy.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....runtime.graph import DType, Node
from ....runtime.operators.ml.forests import Forest, make_forest
from ....runtime.operators.ml.tree_attributes import TREE_READERS, TreeRule, Verdict
from ..plans.operand_layout import Layout, Operand
from ..plans.plan_builder import PlanBuilder
from .numpy_operators import lower_by_numpy, refuses_operator
from .registry import kernel

__all__ = ["lower_trees", "tree_tables"]

Array = np.ndarray[Any, Any]

_ROWS = frozenset({DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64})
_IS_LEAF = 1 << 31
_SENDS_MISSING = 1 << 30
_MOST_NUMBERS = 1 << 30
_MOST_LEVELS = 24
"""Levels that are counted; the kernel finds out itself where deeper trees end."""
_ALIGN_BYTES = 64
_AGGREGATES = ("SUM", "AVERAGE", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_HEAD = ("features", "nodes", "trees", "leaves", "entries", "targets", "aggregate", "transform")
_HEAD_WORDS = (*_HEAD, "verdict", "column", "has_base", "is_positive", "labels")


@kernel(*TREE_READERS, domain="ai.onnx.ml", dtypes=_ROWS, refuses=refuses_operator)
def lower_trees(node: Node, builder: PlanBuilder) -> None:
    """Lower an ensemble as its kernel, or as a call on numpy arrays where there is none."""
    (x, *_), results = node.inputs, node.outputs
    assert x is not None
    is_whole = len(results) == (2 if node.op_type == "TreeEnsembleClassifier" else 1)
    if not is_whole or builder.dtype(x) is not DType.FLOAT32:
        lower_by_numpy(node, builder)
        return
    read = functools.partial(TREE_READERS[node.op_type], **node.attributes)
    packed = builder.derived(f"trees of {node.name}", (), lambda: tree_tables(read()))
    shape = builder.shape(x)
    if not len(packed) or not 0 < _least_features(packed) <= shape[-1] < _MOST_NUMBERS:
        lower_by_numpy(node, builder)
        return
    rows = shape[0] if len(shape) == 2 else 1
    head, tables = _read_tables(builder.constant_operand(packed), packed)
    targets = head["targets"]
    sums = builder.temporary(Layout.plain((rows, targets), DType.FLOAT64))
    marks = builder.temporary(Layout.plain((rows, targets), DType.UINT8))
    made = [
        builder.result(value, Layout.plain(builder.shape(value), builder.dtype(value)))
        for value in results
    ]
    if head["verdict"] == Verdict.SCORES.value:
        builder.expect_shape(results[0], (rows, targets))
    else:
        builder.expect_shape(results[0], (rows,))
        builder.expect_shape(results[1], (rows, targets))
    words = [rows, shape[-1], *(head[name] for name in _HEAD_WORDS[1:])]
    builder.native("tree_ensemble", (builder.plain(x), *tables, sums, marks, *made), words)


def tree_tables(rule: TreeRule) -> Array:
    """Write an ensemble as the kernel's tables; an empty array where numpy is to compute it."""
    weights = rule.votes.weights.astype(np.float32)
    is_numbered = (
        rule.verdict in (Verdict.SCORES, Verdict.POSITIVE) or rule.labels.dtype == np.int64
    )
    if (
        rule.is_double
        or not is_numbered
        or rule.aggregate not in _AGGREGATES
        or rule.transform not in _TRANSFORMS
        or (rule.verdict is Verdict.SECOND and rule.transform == "PROBIT")
        or not np.array_equal(weights, rule.votes.weights, equal_nan=True)
    ):
        return np.zeros(0, np.uint8)
    forest = make_forest(rule.question, np.dtype(np.float32))
    nodes, leaf_places = _node_table(forest)
    counts = np.diff(rule.votes.starts)[leaf_places]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    _, entries = rule.votes.entries(leaf_places[None])
    labels = rule.labels if rule.labels.dtype == np.int64 else np.zeros(0, np.int64)
    head = {
        "features": int(forest.features.max(initial=0)) + 1,
        "nodes": len(nodes),
        "trees": len(forest.roots),
        "leaves": len(leaf_places),
        "entries": len(entries),
        "targets": rule.target_count,
        "aggregate": _AGGREGATES.index(rule.aggregate),
        "transform": _TRANSFORMS.index(rule.transform),
        "verdict": rule.verdict.value,
        "column": rule.column,
        "has_base": int(rule.has_base),
        "is_positive": int(rule.is_positive),
        "labels": len(labels),
    }
    if max(len(nodes), len(entries), head["features"]) >= _MOST_NUMBERS:
        return np.zeros(0, np.uint8)
    return _joined(
        [
            np.array([head[name] for name in _HEAD_WORDS], np.int64),
            nodes,
            np.stack([forest.roots, _levels(forest)], axis=1).astype(np.int32),
            starts,
            rule.votes.targets[entries].astype(np.int32),
            weights[entries],
            rule.base.astype(np.float64),
            labels,
        ]
    )


def _node_table(forest: Forest) -> tuple[Array, Array]:
    """Return four words a node, for a power of two of them, and the leaves' places in the file."""
    count = len(forest.features)
    is_leaf = forest.leaves >= 0
    flags = np.where(is_leaf, np.cumsum(is_leaf) - 1 + _IS_LEAF, forest.features)
    flags = flags + np.where(forest.missing & ~is_leaf, _SENDS_MISSING, 0)
    table = np.zeros((1 << max(0, count - 1).bit_length(), 4), np.uint32)
    table[:count, 0] = np.where(is_leaf, np.float32(np.nan), forest.thresholds).view(np.uint32)
    table[:count, 1] = flags
    table[:count, 2:] = forest.children.reshape(-1, 2)
    return table.view(np.int32), forest.leaves[is_leaf]


def _levels(forest: Forest) -> Array:
    """Count the levels below each root, as far as ``_MOST_LEVELS``."""
    children = forest.children.reshape(-1, 2)
    levels = np.zeros(len(children), np.int64)
    nodes = np.flatnonzero(forest.leaves < 0)
    for level in range(1, _MOST_LEVELS + 1):
        nodes = nodes[(levels[children[nodes]] == level - 1).any(axis=1)]
        if not len(nodes):
            break
        levels[nodes] = level
    return levels[forest.roots]


def _joined(tables: list[Array]) -> Array:
    """Lay arrays one after the other; ``_read_tables`` finds them again."""
    ends = np.cumsum([_padded(table.nbytes) for table in tables])
    packed = np.zeros(int(ends[-1]), np.uint8)
    for table, end in zip(tables, ends.tolist(), strict=True):
        start = end - _padded(table.nbytes)
        packed[start : start + table.nbytes] = (
            np.ascontiguousarray(table).reshape(-1).view(np.uint8)
        )
    return packed


def _read_tables(whole: Operand, packed: Array) -> tuple[dict[str, int], list[Operand]]:
    """Return the head, and an operand for each table behind it."""
    words = packed[: 8 * len(_HEAD_WORDS)].view(np.int64).tolist()
    head = dict(zip(_HEAD_WORDS, words, strict=True))
    shapes: list[tuple[tuple[int, ...], DType]] = [
        ((head["nodes"], 4), DType.INT32),
        ((head["trees"], 2), DType.INT32),
        ((head["leaves"] + 1,), DType.INT32),
        ((head["entries"],), DType.INT32),
        ((head["entries"],), DType.FLOAT32),
        ((head["targets"],), DType.FLOAT64),
        ((head["labels"],), DType.INT64),
    ]
    start, tables = _padded(8 * len(_HEAD_WORDS)), []
    for shape, dtype in shapes:
        layout = Layout.plain(shape, dtype)
        tables.append(Operand(whole.buffer, layout, whole.offset_bytes + start))
        start += _padded(layout.size_bytes)
    return head, tables


def _least_features(packed: Array) -> int:
    return int(packed[:8].view(np.int64)[0])


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGN_BYTES) * _ALIGN_BYTES
